"""An artefact appears whole or not at all: made in a folder beside its place, then moved there."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rivals.edge.artefact_files import MODEL_BYTES, waiting_card
from rivals.edge.card import next_sidecar, sidecar
from rivals.errors import RivalsError
from rivals.io.files import flush_folder, move_folder, remove_abandoned
from rivals.io.reading import read_bytes


@contextlib.contextmanager
def place(out: Path) -> Iterator[Path]:
    """A path to write to; what is there at the end takes the place of `out`.

    After an error, and whatever a killed process left here before, nothing remains.
    """
    room = out.parent / f".{out.name}.{os.getpid()}.part"
    try:
        remove_abandoned(out)
        room.mkdir()
        yield room / out.name
        _move(room, out)
    except OSError as error:
        raise RivalsError(
            f"Could not write {out} ({error.strerror}); make room there or choose another place."
        ) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def check_place(out: Path, suffix: str) -> None:
    """Refuse, before any work, a place where the artefact cannot go."""
    try:
        _check(out, suffix)
    except OSError as error:
        raise RivalsError(
            f"{out} cannot be used ({error.strerror}); choose another place."
        ) from error


def _check(out: Path, suffix: str) -> None:
    if suffix and out.suffix != suffix:
        raise RivalsError(
            f"{out} does not end in {suffix}, by which its runtime is found; "
            f"use {out.with_suffix(suffix).name if out.name else f'a name like ticket{suffix}'}."
        )
    if suffix and out.is_dir():
        raise RivalsError(f"{out} is a folder, but the artefact is a file; choose another name.")
    if not suffix and out.exists() and not sidecar(out).is_file():
        raise RivalsError(
            f"{out} is there and is no artefact of rivals, so it is not replaced; "
            "choose a name for a new folder."
        )
    if not out.parent.is_dir():
        raise RivalsError(f"There is no folder {out.parent} for {out.name}; make it first.")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise RivalsError(f"{out.parent} cannot be written to; choose another place.")


def _move(room: Path, out: Path) -> None:
    """Flush and rename. With the artefact, its card counts: it waits beside it before."""
    made = room / out.name
    for path in (made, *made.rglob("*"), room / sidecar(out).name):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    if made.is_dir():
        move_folder(made, out)
    else:
        beside, waiting = room / f"{out.name}.json", next_sidecar(out)
        _settle(out)
        if beside.exists():
            beside.replace(waiting)
            flush_folder(out.parent)
        made.replace(out)
        if os.path.lexists(waiting):
            flush_folder(out.parent)
            waiting.replace(sidecar(out))
    flush_folder(out.parent)


def _settle(out: Path) -> None:
    """End what a killed export to `out` began: its card takes its place, or goes."""
    waiting = next_sidecar(out)
    if not os.path.lexists(waiting):
        return
    content = (read_bytes(out, "artefact", MODEL_BYTES),) if out.is_file() else ()
    if waiting_card(out, content) is None:
        waiting.unlink()
    else:
        waiting.replace(sidecar(out))
    flush_folder(out.parent)
