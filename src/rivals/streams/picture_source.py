"""Where pictures come from: a folder with a subfolder for each class, a dataset, or arrays.

    FOLDER/cat/*.jpg   FOLDER/dog/*.png   ─►   uint8 (n, channels, height, width) and labels
    FOLDER/yes/*.wav   FOLDER/no/*.wav    ─►   the same: sounds become spectrograms

Pictures are brought to the model's size one by one, so that memory follows the number of pictures
and not their size. Two pictures that are the same at that size are the same to a network: within a
class one of them counts, in two classes neither does.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.pictures import MAX_MEMORY, Shape, picture_size, to_pixels
from rivals.io.reading import printable
from rivals.io.sounds import is_sound
from rivals.io.spectrogram import SoundSettings
from rivals.seeds import Seed

IGNORED = {"thumbs.db", "desktop.ini"}  # what file managers leave
PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
SURVEYED = 200  # pictures whose size is looked at
MOST_CLASSES = 1000
BOTH = -1  # no class
LONGEST_NAME = 100  # letters of a class or a task
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # the direction of what is shown

Reads = Callable[[int, int], None]  # called with how many are read, and of how many


@dataclass(frozen=True)
class LeftOut:
    """A file that is not learned from, and why, in one sentence."""

    path: str
    why: str


@dataclass(frozen=True)
class PictureSource:
    """The pictures of a task by class, in a fixed order, before any is decoded.

    An item is a path, or whatever `get` turns into a picture; or, where `sound` says how it is
    read, into a sound.
    """

    place: Path | str  # what messages call it
    classes: dict[str, list[Any]]
    left_out: list[LeftOut] = field(default_factory=list)
    get: Callable[[Any], Any] = lambda item: item
    sound: SoundSettings | None = None

    @property
    def count(self) -> int:
        return sum(len(files) for files in self.classes.values())

    @property
    def items(self) -> list[Any]:
        return [item for items in self.classes.values() for item in items]

    def only(self, classes: dict[str, list[Any]]) -> PictureSource:
        """The same place with these items by class."""
        return replace(self, classes=classes)

    def where(self, values: Mapping[Any, Any], value: Any) -> PictureSource:
        """The items of one value; all classes stay, some perhaps without items."""
        return self.only(
            {
                name: [item for item in items if values[item] == value]
                for name, items in self.classes.items()
            }
        )

    def read_as(self, sound: SoundSettings | None, reader: str) -> PictureSource:
        """The same, read as the model or stream `reader` reads: sounds, or pictures."""
        if (sound is None) != (self.sound is None):
            found, wanted = ("pictures", "sounds") if sound else ("sounds", "pictures")
            raise RivalsError(
                f"{self.place} holds {found}, but {reader} reads {wanted}; use another one."
            )
        return replace(self, sound=sound)


@dataclass(frozen=True)
class LoadedPictures:
    """What was read: images (n, channels, height, width) uint8, labels (n,), what was left out."""

    classes: tuple[str, ...]
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    left_out: list[LeftOut]
    repeated: int  # pictures that were there before in the same class
    items: tuple[Any, ...] = ()  # where each image came from: a path, or a number


def find(folder: Path, fewest: int = 2) -> PictureSource:
    """The files of every class of `folder`; one that cannot be learned from is refused.

    `fewest` is how many classes, and pictures of a class, there must be: two to learn, one to test.
    """
    inside = _entries(folder)
    classes: dict[str, list[str]] = {}
    left_out: list[LeftOut] = []
    root = folder.resolve()
    for path in (Path(entry.path) for entry in inside):
        if not path.is_dir():
            left_out.append(LeftOut(str(path), "it lies in no class's folder"))
        elif root not in path.resolve().parents:
            left_out.append(LeftOut(str(path), "it leads out of the folder"))
        else:
            name = named(path.name, "class")
            if name in classes:
                raise RivalsError(f"{folder} has two folders for the class '{name}'; join them.")
            classes[name] = _files(path, root, left_out)
            if not classes[name] and (deeper := subfolders(path)):
                raise RivalsError(
                    f"{path} holds the folder '{printable(deeper[0].name)}' and no pictures, but a "
                    f"class is a folder of pictures; if its folders are the classes, name {path}."
                )
    if len(classes) < fewest:
        found = f"one class, '{next(iter(classes))}'" if classes else "no classes"
        loose = sum(Path(each.path).suffix.lower() in PICTURES for each in left_out)
        needs = "a task needs at least two classes" if fewest > 1 else "a test needs at least one"
        lie = "1 picture that lies" if loose == 1 else f"{loose} pictures that lie"
        beside = f" and {lie} directly in it" if loose else ""
        raise RivalsError(
            f"{folder} holds {found}{beside}, but {needs}; "
            "make a subfolder for each class and put its pictures there."
        )
    if len(classes) > MOST_CLASSES:
        raise RivalsError(f"{folder} has {len(classes)} classes; a task has at most 1,000.")
    for name, files in classes.items():
        check_enough(folder, name, len(files), fewest=fewest)
    return with_sounds(PictureSource(folder, classes, left_out))


def with_sounds(source: PictureSource) -> PictureSource:
    """The same; where its items are sounds, with settings that suit them. A mixture is refused."""
    sounds = [item for item in source.items if is_sound(source.get(item))]
    if not sounds:
        return source
    kinds = {path.suffix.lower(): path for path in map(Path, map(str, source.items))}
    picture = next((kinds[kind] for kind in sorted(PICTURES & set(kinds))), None)
    if picture is not None:
        raise RivalsError(
            f"{source.place} holds both sounds and pictures, such as {Path(sounds[0]).name} and "
            f"{picture.name}, but a task has one kind; take the others out."
        )
    some = sounds[:: -(-len(sounds) // SURVEYED)]
    return replace(source, sound=SoundSettings.suiting(map(source.get, some)))


def check_enough(
    place: Path | str, name: str, count: int, left_out: Sequence[LeftOut] = (), fewest: int = 2
) -> None:
    """Two pictures of a class to learn from: one for training, one to check with."""
    if count < fewest:
        why = ""
        if left_out:  # what the first one lacks is probably what they all lack
            path, reason = left_out[0].path, left_out[0].why.partition(";")[0].rstrip(".")
            first = reason if path in reason else f"{Path(path).name}: {reason}"
            why = f" ({len(left_out)} left out; {first})"
        needs = "at least 2, one to learn from and one to check with" if fewest > 1 else "one"
        raise RivalsError(
            f"The class '{name}' of {place} has {count} picture{'' if count == 1 else 's'}{why}, "
            f"but each needs {needs}; add some."
        )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, in order, but for what is hidden."""
    try:
        with os.scandir(folder) as found:
            entries = [e for e in found if e.name[0] != "." and e.name.lower() not in IGNORED]
    except NotADirectoryError as error:
        raise RivalsError(
            f"{folder} is a file, but a folder with a subfolder for each class was expected."
        ) from error
    except FileNotFoundError as error:
        raise RivalsError(
            f"There is no folder {folder}; name one with a subfolder for each class."
        ) from error
    except OSError as error:
        raise RivalsError(f"The folder {folder} cannot be read ({error.strerror}).") from error
    return sorted(entries, key=lambda entry: entry.name)


def subfolders(folder: Path) -> list[Path]:
    """The folders inside a folder, but for hidden ones and links that lead out of it."""
    found = [Path(entry.path) for entry in _entries(folder)]
    return [path for path in found if path.is_dir() and folder.resolve() in path.resolve().parents]


def _files(folder: Path, root: Path, left_out: list[LeftOut]) -> list[str]:
    """The regular files in the folder of a class; links may not lead out of `root`."""
    kept = []
    for entry in _entries(folder):
        if entry.is_symlink():
            try:
                inside = root in Path(entry.path).resolve(strict=True).parents
            except (OSError, RuntimeError):
                left_out.append(LeftOut(entry.path, "it leads nowhere"))
                continue
            if not inside:
                left_out.append(LeftOut(entry.path, "it leads out of the folder"))
                continue
        if entry.is_file():
            kept.append(entry.path)
        else:
            what = "a folder inside a class" if entry.is_dir() else "no regular file"
            left_out.append(LeftOut(entry.path, f"it is {what}"))
    return kept


def named(text: str, kind: str) -> str:
    """The name of a class or a task, in one spelling: any script, but no hidden commands to a
    terminal."""
    name = unicodedata.normalize("NFC", text)
    shown = ascii(name)[1:-1] if _hidden(name) else name
    if not name.strip() or _hidden(name):
        raise RivalsError(
            f"The {kind} '{shown}' has a name with characters that cannot be shown; rename it."
        )
    if kind == "task" and (name.startswith(".") or "/" in name or "\\" in name):
        raise RivalsError(
            f"The task '{shown}' has a name with / or \\ or a dot at its start; a name must "
            "not look like a path; choose another one."
        )
    if len(name) > LONGEST_NAME:
        raise RivalsError(
            f"The {kind} '{shown[:20]}…' has a name of {len(name)} letters; "
            f"use at most {LONGEST_NAME}."
        )
    return name


def _hidden(name: str) -> bool:
    return any(
        unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or sign in TURNING for sign in name
    )


def survey(source: PictureSource) -> int:
    """The median of the shorter sides of some of the pictures, in pixels."""
    if source.sound is not None:
        return min(source.sound.size)
    items, sides = source.items, []
    for item in items[:: -(-len(items) // SURVEYED)]:
        with suppress(RivalsError):
            width, height = picture_size(source.get(item))
            sides.append(min(width, height))
    return int(np.median(sides)) if sides else 0


def sample(found: PictureSource, most: int, seed: Seed) -> PictureSource:
    """At most `most` files, as even over classes as their numbers allow; chosen by chance."""
    if found.count <= most:
        return found
    sizes = sorted(len(files) for files in found.classes.values())
    each, left = 0, most
    for number, size in enumerate(sizes):
        each = max(2, left // (len(sizes) - number))
        left -= min(size, each)
    classes = {}
    for name, files in found.classes.items():
        order = seed.child(name).permutations()(len(files))[:each]
        classes[name] = [files[i] for i in np.sort(order).tolist()]
    return replace(found, classes=classes)


def read(
    found: PictureSource, shape: Shape, progress: Reads | None = None, repeats: bool = False,
    fewest: int = 2, memory: int = MAX_MEMORY,
) -> LoadedPictures:  # fmt: skip
    """Decode all pictures; those that occur twice count once, unless `repeats`.

    Decoding a picture takes at most `memory` bytes; one that would take more is left out.
    """
    images = np.empty((found.count, *shape), np.uint8)
    again: set[tuple[bytes, int]] = set()  # what is in a second class, too
    kept: list[tuple[Any, bytes]] = []  # item, digest of its pixels
    owner: dict[bytes, int] = {}  # of a digest: its class, or BOTH
    labels, left_out, done = list[int](), list(found.left_out), 0
    for label, files in enumerate(found.classes.values()):
        for path in files:
            done += 1
            if progress:
                progress(done, found.count)
            try:
                images[len(kept)] = to_pixels(
                    found.get(path), shape, memory=memory, sound=found.sound
                )
            except RivalsError as error:
                left_out.append(LeftOut(str(path), str(error)))
                continue
            mark = hashlib.blake2b(images[len(kept)].data, digest_size=16).digest()
            if repeats:
                mark = done.to_bytes(16, "little")
            if owner.get(mark) == label or (mark, label) in again:
                continue
            if mark in owner:
                owner[mark] = BOTH
                again.add((mark, label))
            else:
                owner[mark] = label
            kept.append((path, mark))
            labels.append(label)
    repeated = done - len(kept) - (len(left_out) - len(found.left_out))
    left_out += [
        LeftOut(str(path), "the same picture is in another class, too")
        for path, mark in kept
        if owner[mark] == BOTH
    ]
    clear = [number for number, (_, mark) in enumerate(kept) if owner[mark] != BOTH]
    for place, number in enumerate(clear):
        if place != number:
            images[place] = images[number]
    labelled = np.array([labels[number] for number in clear], np.int64)
    for label, name in enumerate(found.classes):
        here = [each for each in left_out if named_like(Path(each.path).parent.name, name)]
        check_enough(found.place, name, int((labelled == label).sum()), here, fewest)
    items = tuple(kept[number][0] for number in clear)
    images = images[: len(clear)]
    return LoadedPictures(tuple(found.classes), images, labelled, left_out, repeated, items)


def named_like(text: str, name: str) -> bool:
    return unicodedata.normalize("NFC", text) == name
