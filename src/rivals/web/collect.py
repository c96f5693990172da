"""Collected pictures: `<task>/<class>/<checksum>.png` on disk, a table of them in memory.

The server is the only one to write here (it holds a lock), so the table is read once, at its start.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.io.files import digest, make_folder, write_bytes
from rivals.web.checked import suffix_of, thumbnail
from rivals.web.names import safe_name

NEWEST = 24  # pictures of a class that are shown unasked


@dataclass(frozen=True)
class Limits:
    """How much a browser may put on this machine."""

    picture: int = 10 * 2**20  # bytes of one picture
    a_class: int = 2_000  # pictures
    classes: int = 100  # of a task
    tasks: int = 30  # collected at a time
    pictures: int = 20_000  # in all
    bytes: int = 2 * 2**30  # in all


Sizes = dict[str, int]  # file name: bytes
Classes = dict[str, Sizes]


class Collection:
    """Pictures by task and class, in the order in which they came."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        make_folder(folder)
        self.folder, self.limits = folder, limits or Limits()
        self.tasks: dict[str, Classes] = {}
        self.version = 0
        self._lock = threading.RLock()
        for task in _folders(folder):
            self.tasks[task.name] = {each.name: _pictures(each) for each in _folders(task)}

    def listing(self) -> list[dict[str, Any]]:
        """What the page shows: how many pictures, and the names of the newest, these last."""
        with self._lock:
            return [
                {
                    "task": task,
                    "classes": [
                        {"name": name, "count": len(files), "newest": list(files)[-NEWEST:]}
                        for name, files in classes.items()
                    ],
                }
                for task, classes in self.tasks.items()
            ]

    def names(self, task: str, name: str) -> list[str]:
        with self._lock:
            return list(self._files(task, name))

    def of(self, task: str) -> Path:
        """The folder of a task, as `rivals learn` takes it."""
        self._classes(task)
        return self.folder / task

    def add_class(self, task: str, name: str) -> tuple[str, str]:
        """Make a class, and with its first one a task; gives both names as they are stored."""
        task, name = safe_name(task, "task"), safe_name(name, "class")
        with self._lock:
            classes = self.tasks.get(task, {})
            if name in classes:
                return task, name
            if task not in self.tasks and len(self.tasks) >= self.limits.tasks:
                raise RivalsError(
                    f"Pictures of {len(self.tasks)} tasks are collected, which is the most; "
                    "remove some first."
                )
            if len(classes) >= self.limits.classes:
                raise RivalsError(f"'{task}' has {len(classes)} classes, which is the most.")
            make_folder(self.folder / task / name)
            self.tasks.setdefault(task, {})[name] = {}
            self.version += 1
        return task, name

    def add(self, task: str, name: str, data: bytes, said: str) -> str:
        """Store a picture, and give its name; `said` is what the user calls it."""
        suffix = suffix_of(data, said)
        stored = digest(data)[:24] + suffix
        with self._lock:
            classes = self._classes(task)
            files = self._files(task, name)
            for other, theirs in classes.items():
                if stored in theirs and other == name:
                    return stored
                if stored in theirs:
                    raise RivalsError(f"{said} is already in the class '{other}' of '{task}'.")
            self._check_room(task, name, len(data))
            write_bytes(self.folder / task / name / stored, data)
            files[stored] = len(data)
            self.version += 1
        return stored

    def thumbnail(self, task: str, name: str, picture: str, side: int = 112) -> bytes:
        self._files(task, name)[picture]  # only what is in the table is ever opened
        return thumbnail((self.folder / task / name / picture).read_bytes(), picture, side)

    def remove(self, task: str, name: str | None = None, picture: str | None = None) -> None:
        """Take out a task, a class or a picture; whatever is not there is out already."""
        with self._lock:
            classes = self.tasks.get(task, {})
            if name is None:
                if self.tasks.pop(task, None) is not None:
                    shutil.rmtree(self.folder / task, ignore_errors=True)
            elif picture is None:
                if classes.pop(name, None) is not None:
                    shutil.rmtree(self.folder / task / name, ignore_errors=True)
                if not classes:
                    self.remove(task)
            elif classes.get(name, {}).pop(picture, None) is not None:
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / task / name / picture).unlink()
            self.version += 1

    def rename(self, task: str, name: str | None, to: str) -> str:
        """Give a class, or without one a task, another name."""
        to = safe_name(to, "task" if name is None else "class")
        with self._lock:
            classes = self._classes(task)
            if to == (task if name is None else name):
                return to
            at, table = (self.folder, self.tasks) if name is None else (self.folder / task, classes)
            old = task if name is None else name
            if name is not None:
                self._files(task, name)
            if to in table or (at / to).exists():
                raise RivalsError(f"There is already one named '{to}'; choose another name.")
            try:
                (at / old).rename(at / to)
            except OSError as error:
                raise RivalsError(f"'{old}' could not be renamed ({error.strerror}).") from error
            renamed = {to if each == old else each: value for each, value in table.items()}
            table.clear()
            table.update(renamed)  # type: ignore[arg-type]
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

    def _check_room(self, task: str, name: str, size: int) -> None:
        most, here = self.limits, self.tasks[task][name]
        if size > most.picture:
            raise RivalsError(too_large(size, most.picture))
        if len(here) >= most.a_class:
            raise RivalsError(
                f"'{name}' has {len(here):,} pictures, which is the most for a class."
            )
        every = [files for classes in self.tasks.values() for files in classes.values()]
        if sum(map(len, every)) >= most.pictures:
            raise RivalsError(
                f"{most.pictures:,} pictures are collected, which is the most; remove some first."
            )
        if sum(sum(files.values()) for files in every) + size > most.bytes:
            raise RivalsError(
                f"The collected pictures take {most.bytes / 2**20:,.0f} MB, which is the most; "
                "remove some first."
            )


def too_large(size: int | None, most: int) -> str:
    found = "more" if size is None else f"{size / 2**20:.1f} MB"
    return f"This picture has {found}, and {most / 2**20:g} MB are the most; make it smaller."


def _folders(folder: Path) -> list[Path]:
    found = (each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    return sorted(found)


def _pictures(folder: Path) -> Sizes:
    """What is stored; what a killed server left half-written goes."""
    found: list[tuple[int, str, int]] = []
    for path in folder.iterdir():
        if path.name.startswith("."):
            with contextlib.suppress(OSError):
                path.unlink()
        elif path.is_file():
            facts = path.stat()
            found.append((facts.st_mtime_ns, path.name, facts.st_size))
    return {name: size for _, name, size in sorted(found)}
