"""Collected pictures: `<task>/<class>/<checksum>.png` on disk, and a table of them in memory.

The server holds a lock on this folder, so the table is read only once, when the server starts.
Links, pipes and names that a page could not have made are not in the table.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rivals.errors import RivalsError
from rivals.io.files import (
    digest,
    flush_folder,
    make_folder,
    remove_folder,
    remove_partial,
    write_bytes,
)
from rivals.io.pictures import FORMATS, open_picture, upright
from rivals.io.reading import check_no_links, read_bytes

NEWEST = 24  # pictures of a class in a listing
CHECKED = (256, 256)  # pixels to which an upload is decoded, to see that it can be
NAME_CHARACTERS = 60
NAME_BYTES = 200  # most file systems allow 255
one_picture = threading.Lock()  # decoded at a time, for each takes up to 220 MB
OURS = re.compile(r"[0-9a-f]{24}\.\w+")  # the name of a picture that was uploaded
FORBIDDEN = '/\\:*?"<>|'


@dataclass(frozen=True)
class Limits:
    """How much a browser may store on this machine."""

    picture_bytes: int = 10 * 2**20
    class_pictures: int = 2_000
    task_classes: int = 100
    tasks: int = 30
    pictures: int = 20_000  # of all tasks
    bytes: int = 2 * 2**30  # of all pictures


@dataclass(frozen=True)
class NewPicture:
    """A picture that is to be added; error messages call it `filename`."""

    task: str
    name: str  # of its class
    data: bytes
    filename: str


Sizes = dict[str, int]  # file name: bytes
Classes = dict[str, Sizes]
Value = TypeVar("Value")


class Collection:
    """Pictures by task and class, in the order in which they were added."""

    def __init__(
        self,
        folder: Path,
        limits: Limits | None = None,
        check_place: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_place` is called before anything is changed on the disk."""
        make_folder(folder)
        self.folder, self.limits, self.check_place = folder, limits or Limits(), check_place
        self.tasks: dict[str, Classes] = {}
        self.version = 0
        self.edited: set[str] = set()  # tasks with pictures that were moved or removed
        self._lock = threading.RLock()
        for task in _folders(folder, "task"):
            classes = _classes(task)
            if classes:
                self.tasks[task.name] = classes
            else:  # a server was killed before it made the first class
                with contextlib.suppress(OSError):
                    task.rmdir()

    def listing(self) -> list[dict[str, Any]]:
        """Tasks and classes with the number of pictures and the newest names, oldest first."""
        with self._lock:
            return [
                {
                    "task": task,
                    "edited": task in self.edited,
                    "classes": [
                        {"name": name, "count": len(files), "newest": list(files)[-NEWEST:]}
                        for name, files in classes.items()
                    ],
                }
                for task, classes in self.tasks.items()
            ]

    def names(self, task: str, name: str) -> list[str]:
        """The file names of a class."""
        with self._lock:
            return list(self._files(task, name))

    def places(self) -> list[tuple[str, str, str]]:
        """Task, class and file name of every picture."""
        with self._lock:
            return [
                (task, name, picture)
                for task, classes in self.tasks.items()
                for name, files in classes.items()
                for picture in files
            ]

    def path(self, task: str) -> Path:
        """The folder of a task, in the form that `rivals learn` reads."""
        self._classes(task)
        return self.folder / task

    def add_class(self, task: str, name: str) -> tuple[str, str]:
        """Add a class, and the task if it is new; returns both names as they are stored."""
        task, name = safe_name(task, "task"), safe_name(name, "class")
        with self._lock:
            classes = self.tasks.get(task, {})
            if name in classes:
                return task, name
            if task not in self.tasks and len(self.tasks) >= self.limits.tasks:
                raise RivalsError(
                    f"Pictures of {len(self.tasks)} tasks are collected, which is the limit; "
                    "remove a task first."
                )
            if len(classes) >= self.limits.task_classes:
                raise RivalsError(
                    f"'{task}' has {len(classes)} classes, which is the limit; remove one first."
                )
            self.check_place()
            check_no_links(self.folder, self.folder / task / name, "class")
            make_folder(self.folder / task / name)
            self.tasks.setdefault(task, {})[name] = {}
            self.version += 1
        return task, name

    def add(self, task: str, name: str, data: bytes, filename: str) -> str:
        """Store a picture and return its name; error messages call it `filename`."""
        with one_picture:
            suffix = suffix_of(data, filename)
        stored = digest(data)[:24] + suffix
        with self._lock:
            classes = self._classes(task)
            files = self._files(task, name)
            if stored in files:
                return stored
            for other, other_files in classes.items():
                if stored in other_files:
                    raise RivalsError(
                        f"{filename} is already in the class '{other}' of '{task}'; remove it "
                        "there, or leave it out."
                    )
            self._check_room(name, len(files), len(data))
            self.check_place()
            check_no_links(self.folder, self.folder / task / name / stored, "picture")
            write_bytes(self.folder / task / name / stored, data)
            files[stored] = len(data)
            self.version += 1
        return stored

    def check_new(self, task: str) -> None:
        """Refuse the name of a task that is there."""
        if task in self.tasks:
            raise RivalsError(
                f"Pictures of a task '{task}' are collected here already; rename it, or remove it."
            )

    def add_tasks(self, pictures: Iterable[NewPicture]) -> list[str]:
        """Add whole tasks that are not there yet, all or none; returns their names."""
        staging = self.folder / f".new.{os.getpid()}.{threading.get_ident()}.part"
        self.check_place()
        new: dict[str, Classes] = {}
        remove_partial(staging)
        make_folder(staging)
        try:
            for picture in pictures:
                self._stage(staging, new, picture)
            if not new:
                raise RivalsError("There are no pictures in it; choose another file.")
            with self._lock:
                for task in new:  # again: a request may have come between
                    self.check_new(task)
                self.check_place()
                for task, classes in new.items():
                    with _changing(task):
                        (staging / task).rename(self.folder / task)
                        flush_folder(self.folder)
                    self.tasks[task] = classes
                    self.version += 1
        finally:
            remove_partial(staging)
        return list(new)

    def _stage(self, staging: Path, new: dict[str, Classes], picture: NewPicture) -> None:
        """Check a picture of a new task and write it to a folder of its own."""
        task, name = safe_name(picture.task, "task"), safe_name(picture.name, "class")
        self.check_new(task)
        if task not in new and len(self.tasks) + len(new) >= self.limits.tasks:
            raise RivalsError(f"More than {self.limits.tasks} tasks would be collected, the limit.")
        classes = new.setdefault(task, {})
        if name not in classes and len(classes) >= self.limits.task_classes:
            raise RivalsError(f"'{task}' has more than {self.limits.task_classes} classes.")
        files = classes.setdefault(name, {})
        with one_picture:
            stored = digest(picture.data)[:24] + suffix_of(picture.data, picture.filename)
        if any(stored in each for each in classes.values()):
            raise RivalsError(f"{picture.filename} is in '{task}' twice; leave one out.")
        with self._lock:
            self._check_room(name, len(files), len(picture.data), new)
        for folder in (staging / task, staging / task / name):
            make_folder(folder)
        write_bytes(staging / task / name / stored, picture.data)
        files[stored] = len(picture.data)

    def move(self, task: str, name: str, picture: str, to: str) -> None:
        """Move a picture to another class of its task."""
        with self._lock:
            files, others = self._files(task, name), self._files(task, to)
            if picture not in files:
                raise RivalsError("This picture was removed.")
            if name == to:
                return
            self._check_room(to, len(others), 0)
            self.check_place()
            old, new = (self.folder / task / each / picture for each in (name, to))
            for path in (old, new):
                check_no_links(self.folder, path, "picture")
            with _changing(picture):
                old.rename(new)
                flush_folder(new.parent)
                flush_folder(old.parent)
            others[picture] = files.pop(picture)
            self._edited(task)

    def take_out(self, task: str, place: Path) -> None:
        """Move a task, if there is one of this name, to the folder `place`."""
        with self._lock:
            if task in self.tasks:
                self.check_place()
                with _changing(task):
                    (self.folder / task).rename(place / task)
                    flush_folder(self.folder)
                del self.tasks[task]
                self.version += 1

    def bring_back(self, task: str, place: Path) -> None:
        """Take a task back from where `take_out` has put it, if it had put one there."""
        with self._lock:
            if not (place / task).is_dir():
                return
            self.check_new(task)
            self.check_place()
            with _changing(task):
                (place / task).rename(self.folder / task)
                flush_folder(self.folder)
            self.tasks[task] = _classes(self.folder / task)
            self.version += 1

    def _edited(self, task: str) -> None:
        self.edited.add(task)
        self.version += 1

    def thumbnail(self, task: str, name: str, picture: str, side: int = 112) -> bytes:
        """A small PNG of a stored picture; KeyError if there is none of this name."""
        self._files(task, name)[picture]  # only files of the table are opened
        path = self.folder / task / name / picture
        with one_picture:
            data = read_bytes(path, "picture", self.limits.picture_bytes, self.folder)
            return thumbnail(data, picture, side)

    def remove(self, task: str, name: str | None = None, picture: str | None = None) -> None:
        """Remove a task, a class or a picture; nothing happens if it is not there."""
        with self._lock:
            self.check_place()
            classes = self.tasks.get(task, {})
            last = name is not None and picture is None and list(classes) == [name]
            if name is None or last:
                if task in self.tasks:
                    with _changing(task):
                        remove_folder(self.folder / task)
                    del self.tasks[task]
                    self.edited.discard(task)
            elif picture is None:
                if name in classes:
                    with _changing(name):
                        remove_folder(self.folder / task / name)
                    del classes[name]
            elif picture in classes.get(name, {}):
                with _changing(picture):
                    (self.folder / task / name / picture).unlink(missing_ok=True)
                    flush_folder(self.folder / task / name)
                del classes[name][picture]
            if task in self.tasks:
                self.edited.add(task)
            self.version += 1

    def rename(self, task: str, name: str | None, to: str) -> str:
        """Rename a class, or the task if no class is given."""
        to = safe_name(to, "task" if name is None else "class")
        with self._lock:
            classes = self._classes(task)
            if name is None:
                old, parent = task, self.folder
            else:
                self._files(task, name)
                old, parent = name, self.folder / task
            if to == old:
                return to
            taken = to in (self.tasks if name is None else classes)
            if taken or (parent / to).exists():
                raise RivalsError(f"There is already one named '{to}'; choose another name.")
            self.check_place()
            with _changing(old):
                (parent / old).rename(parent / to)
                flush_folder(parent)
            if name is None:
                self.tasks = _renamed(self.tasks, old, to)
                self.edited.discard(old)
            else:
                self.tasks[task] = _renamed(classes, old, to)
            self.version += 1
        return to

    def _classes(self, task: str) -> Classes:
        if task not in self.tasks:
            raise RivalsError(f"No pictures of a task '{task}' are collected here.")
        return self.tasks[task]

    def _files(self, task: str, name: str) -> Sizes:
        classes = self._classes(task)
        if name not in classes:
            raise RivalsError(f"'{task}' has no class '{name}' here; add it first.")
        return classes[name]

    def _check_room(
        self, name: str, count: int, size: int, new: dict[str, Classes] | None = None
    ) -> None:
        """Refuse a picture of `size` bytes that would exceed a limit.

        Its class has `count` pictures; `new` are tasks that are about to be added.
        """
        limits, tasks = self.limits, [*self.tasks.values(), *(new or {}).values()]
        if size > limits.picture_bytes:
            raise RivalsError(too_large(size, limits.picture_bytes))
        if count >= limits.class_pictures:
            raise RivalsError(
                f"'{name}' has {count:,} pictures, which is the limit for a class; remove some "
                "first."
            )
        stored = [files for classes in tasks for files in classes.values()]
        if size and sum(map(len, stored)) >= limits.pictures:
            raise RivalsError(
                f"{limits.pictures:,} pictures are collected, which is the limit; remove some "
                "first."
            )
        if sum(sum(files.values()) for files in stored) + size > limits.bytes:
            raise RivalsError(
                f"The collected pictures take {limits.bytes / 2**20:,.0f} MB, which is the limit; "
                "remove some first."
            )


def too_large(size: int | None, limit: int, name: str = "This picture") -> str:
    """The error message for a picture of `size` bytes; None if its size is not known."""
    found = f"more than {limit / 2**20:g} MB" if size is None else f"{size / 2**20:.1f} MB"
    return f"{name} has {found}, but the limit is {limit / 2**20:g} MB; make it smaller."


# Uploaded bytes and names ------------------------------------------------------------------------


def suffix_of(data: bytes, filename: str) -> str:
    """The suffix for the file of an uploaded picture; raises RivalsError if it does not decode."""
    with open_picture(data, filename) as picture:
        picture.draft(None, CHECKED)
        upright(picture, "RGB", CHECKED)
        return FORMATS[str(picture.format)]


def thumbnail(data: bytes, filename: str, side: int) -> bytes:
    """A small PNG. The page shows it in place of the uploaded bytes, which are not trusted."""
    out = io.BytesIO()
    with open_picture(data, filename) as picture:
        enough = 2 * side, 2 * side
        picture.draft(None, enough)
        small = upright(picture, "RGB", enough)
        small.thumbnail((side, side))
        small.save(out, "PNG")
    return out.getvalue()


def safe_name(text: str, kind: str) -> str:
    """A name that a user typed, as the name of a folder: any script, but no path.

    This is stricter than `rivals learn` has to be with folders that are already on the disk.
    """
    name = unicodedata.normalize("NFC", " ".join(text.split()))
    if not name:
        raise RivalsError(f"The {kind} has no name; type one.")
    if len(name) > NAME_CHARACTERS or len(name.encode(errors="replace")) > NAME_BYTES:
        raise RivalsError(
            f"The name of the {kind} has {len(name)} characters, which is too long; use at most "
            f"{NAME_CHARACTERS}, fewer in some scripts."
        )
    if name.startswith(".") or any(character in FORBIDDEN for character in name):
        raise RivalsError(
            f"The {kind} cannot be named '{name}': a name must not start with a dot or contain "
            f"{' '.join(FORBIDDEN)}; choose another one."
        )
    if name.startswith("-") or any(unicodedata.category(c).startswith("C") for c in name):
        raise RivalsError(
            f"The name of the {kind} starts with a dash or has invisible characters; choose "
            "another one."
        )
    return name


@contextlib.contextmanager
def _changing(name: str) -> Iterator[None]:
    """What the disk refuses, in one sentence."""
    try:
        yield
    except OSError as error:
        raise RivalsError(f"'{name}' could not be changed ({error.strerror}).") from error


def _renamed(table: dict[str, Value], old: str, new: str) -> dict[str, Value]:
    """The same table in the same order with one key renamed."""
    return {new if key == old else key: value for key, value in table.items()}


def _folders(folder: Path, kind: str) -> list[Path]:
    """The folders with names that a task or a class can have; links are none."""
    for left in folder.glob(".*.part"):  # half-removed by a killed server
        remove_partial(left)
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(RivalsError):
                    safe_name(entry.name, kind)
                    found.append(Path(entry.path))
    return sorted(found)


def _classes(task: Path) -> Classes:
    """The classes in the folder of a task.

    A power cut can leave a picture that was being moved in both classes; it stays in the first.
    """
    classes: Classes = {}
    for folder in _folders(task, "class"):
        files = _pictures(folder)
        for name in list(files):
            if OURS.fullmatch(name) and any(name in each for each in classes.values()):
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
                    del files[name]
        classes[folder.name] = files
    return classes


def _pictures(folder: Path) -> Sizes:
    """The stored pictures by age; files that a killed server left half-written are removed."""
    found: list[tuple[int, str, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
            elif entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, entry.name, status.st_size))
    return {name: size for _, name, size in sorted(found)}
