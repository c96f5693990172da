"""The files of an artefact, read and checked before any runtime is given them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rivals.edge.card import BYTES as CARD_BYTES
from rivals.edge.card import WITHOUT_CHECKSUM, Card, next_sidecar, read_card, sidecar
from rivals.edge.onnx_file import GraphFileError, onnx_card, ort_card
from rivals.errors import RivalsError
from rivals.io.checksum import checksum_fits, has_checksum, sha256
from rivals.io.reading import UnreadableError, parse_json, printable, read_bytes

MODEL_BYTES = 256 * 2**20  # of an artefact's file
FOLDER = "folder"  # the artefact of a C program has no suffix
C_FILES = ("ticket.c", "ticket.h")
DEVICE_FILES = (  # of a device that learns (`rivals export --teachable`), as its card covers them
    "Makefile", "example/alone.c", "example/board.c", "example/main.c", "example/ticks.c",
    "features.c", "initial.c", "layers.h", "network.h", "network_float.c", "network_int8.c",
    "teach.c", "teach.h",
)  # fmt: skip
PAGE = "page"  # nor has the folder of a page for browsers
PAGE_MODEL = "model.onnx"
PAGE_FILES, PAGE_BYTES = 32, 64 * 2**20  # in it, and of one beside the model, at most
PAGE_FILE = re.compile(r"\w[\w.-]{0,60}")  # the name of one
CARDS_INSIDE = {".onnx": onnx_card, ".ort": ort_card}
SUFFIXES = (*CARDS_INSIDE, ".tflite", ".pte")
NATIVE = {  # what runs code from the artefact itself, and what it does
    FOLDER: "compiles the C in that folder and runs it on this machine",
    ".pte": "runs a program whose contents ExecuTorch does not check on this machine",
}


@dataclass(frozen=True)
class ArtefactFiles:
    """What was read."""

    path: Path
    suffix: str
    content: tuple[bytes, ...]  # the model; of a C program C_FILES
    card: Card

    @property
    def has_checksum(self) -> bool:
        return self.card.version > WITHOUT_CHECKSUM


def find_suffix(path: Path) -> str:
    """The suffix that says which runtime an artefact needs; what is none is refused."""
    try:
        place = path.resolve(strict=True)  # the user may name a link
    except FileNotFoundError as error:
        raise RivalsError(f"There is no artefact {path}; make one with `rivals export`.") from error
    except (OSError, RuntimeError) as error:  # links in a circle
        reason = getattr(error, "strerror", None) or "its links lead in a circle"
        raise RivalsError(f"{path} cannot be read ({reason}).") from error
    if place.is_dir():
        if os.path.lexists(place / "model.json"):
            raise RivalsError(f"{path} is the folder of a model, not an export; use rivals.Model.")
        is_page = os.path.lexists(place / PAGE_MODEL) and not os.path.lexists(place / C_FILES[0])
        return PAGE if is_page else FOLDER
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise RivalsError(
            f"{path} is not an artefact that can be run: expected a file that ends in "
            f"{', '.join(SUFFIXES)}, or the folder of a C program or of a page."
        )
    return suffix


def check_native(path: Path, suffix: str, allowed: bool) -> None:
    """Refuse artefacts that run code of their own, unless the user allowed it."""
    if suffix in NATIVE and not allowed:
        raise RivalsError(
            f"Predicting with {path} {NATIVE[suffix]}; if you trust where it comes from, allow it "
            "with --run-native."
        )


def read_artefact(path: Path) -> ArtefactFiles:
    """Read all files of an artefact: regular files of limited size, whose checksum fits."""
    suffix, place = find_suffix(path), path.resolve()
    others: tuple[bytes, ...] = ()
    content: tuple[bytes, ...]
    if suffix == PAGE:
        return _read_page(place, path)
    if suffix in CARDS_INSIDE:
        holder = read_bytes(place, "artefact", MODEL_BYTES)
        text, content = _card_inside(holder, suffix, path), (holder,)
    else:
        content = others = _read_beside(place, suffix, path)
        holder = waiting_card(place, others) or _read_sidecar(place, path)
        text = holder.decode(errors="replace")
    card = read_card(text, path)
    stated = card.version > WITHOUT_CHECKSUM or has_checksum(holder)
    if stated and not checksum_fits(holder, *others):
        names = "" if suffix in CARDS_INSIDE else f" ({sidecar(place).name} and what it describes)"
        if suffix == FOLDER:
            names = f" ({sidecar(place).name}, {', '.join(C_FILES)})"
        raise RivalsError(f"{path} was altered: its checksum does not fit{names}; export it again.")
    return ArtefactFiles(path, suffix, content, card)


def check_export(path: Path) -> list[str]:
    """Check an export without running it; what is damaged raises a RivalsError.

    Returns what was found, a sentence each: format and size, tasks and classes, checksum.
    """
    if find_suffix(path) == FOLDER and is_device(path):
        return _check_device(path)
    files = read_artefact(path)
    card, size = files.card, sum(len(data) for data in files.content)
    kind = {FOLDER: "C source", PAGE: "a page for browsers"}.get(files.suffix, files.suffix)
    facts = [
        f"An export ({kind}) of {size:,} bytes.",
        f"{len(card.tasks)} task{'s' * (len(card.tasks) > 1)}, "
        f"{sum(len(each) for each in card.classes)} classes: {printable(', '.join(card.tasks))}.",
    ]
    if files.has_checksum:
        facts.append("The checksum over the card and the model fits.")
    else:
        facts.append(NO_CHECKSUM)
    return facts


NO_CHECKSUM = (
    "It has no checksum, as exports of rivals 0.1; a changed class name would not be noticed. "
    "Export it again to have one."
)


def is_device(path: Path) -> bool:
    """Whether a folder of C is not a ticket's but that of a device that learns."""
    return os.path.lexists(path / "teach.c") and not os.path.lexists(path / C_FILES[0])


def _check_device(path: Path) -> list[str]:
    place = path.resolve()
    holder = _read_sidecar(place, path)
    missing = [name for name in DEVICE_FILES if not os.path.lexists(place / name)]
    if missing:
        raise RivalsError(f"{path} holds no {missing[0]}; make it again with `rivals export`.")
    content = [read_bytes(place / name, "source", MODEL_BYTES, place) for name in DEVICE_FILES]
    if not checksum_fits(holder, *content):
        raise RivalsError(f"{path} was altered: its checksum does not fit; export it again.")
    return [
        f"A device that learns, in C, of {sum(map(len, content)):,} bytes.",
        "The checksum over the card and the sources fits.",
    ]


def _card_inside(data: bytes, suffix: str, path: Path) -> str | None:
    try:
        return CARDS_INSIDE[suffix](data)
    except GraphFileError as error:
        raise RivalsError(
            f"{path} is not an artefact of rivals ({error}); export it again."
        ) from error


def _read_sidecar(place: Path, path: Path) -> bytes:
    try:
        root = place if place.is_dir() else None
        return read_bytes(sidecar(place), "card", CARD_BYTES, root)
    except UnreadableError as error:
        raise RivalsError(
            f"{str(error)[:-1]}; keep {path} and its card together as `rivals export` wrote them."
        ) from error


def waiting_card(place: Path, content: tuple[bytes, ...]) -> bytes | None:
    """The card that a killed export left in its waiting place, if it is that of `content`."""
    waiting = next_sidecar(place)
    if place.is_dir() or not os.path.lexists(waiting):
        return None
    try:
        found = read_bytes(waiting, "card", CARD_BYTES)
    except UnreadableError:
        return None
    return found if checksum_fits(found, *content) else None


def _read_beside(place: Path, suffix: str, path: Path) -> tuple[bytes, ...]:
    """What the card describes: the model's file, or the sources of a C program."""
    if suffix != FOLDER:
        return (read_bytes(place, "artefact", MODEL_BYTES),)
    if is_device(place):
        raise RivalsError(
            f"{path} is a device that learns, which Python does not run; build it with "
            f"`make -C {path}`."
        )
    for name in C_FILES:
        if not os.path.lexists(place / name):
            raise RivalsError(f"{path} holds no {name}; make it with `rivals export --to c`.")
    return tuple(read_bytes(place / name, "artefact", MODEL_BYTES, place) for name in C_FILES)


def _read_page(place: Path, path: Path) -> ArtefactFiles:
    """The model and all other files of a page, as its card lists them with their checksums."""
    holder = _read_sidecar(place, path)
    card = read_card(holder.decode(errors="replace"), path)
    listed = parse_json(holder, f"The card of {path}").get("files")
    if (
        not isinstance(listed, dict) or PAGE_MODEL not in listed or len(listed) > PAGE_FILES
        or not all(PAGE_FILE.fullmatch(name) for name in listed)
    ):  # fmt: skip
        raise RivalsError(f"The card of {path} does not list its files; export it again.")
    altered = [] if checksum_fits(holder) else [sidecar(place).name]
    model = b""
    for name, digest in listed.items():  # one at a time is in memory
        limit = MODEL_BYTES if name == PAGE_MODEL else PAGE_BYTES
        data = read_bytes(place / name, "file of the page", limit, place)
        if sha256(data) != digest:
            altered.append(name)
        if name == PAGE_MODEL:
            model = data
    if altered:
        raise RivalsError(
            f"{path} was altered: a checksum does not fit ({', '.join(altered)}); export it again."
        )
    _card_inside(model, ".onnx", path)  # refuses what a ticket does not hold
    return ArtefactFiles(path, PAGE, (model,), card)
