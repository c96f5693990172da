"""Every moment at which a program can be stopped, and what the disk holds then.

`recorded(folder)` watches all that is written below a folder: every open, write, sync, rename,
unlink, mkdir and rmdir is a point. Before each point three disks are kept:

    killed   all that the program did; the system lives on
    lost     power was cut: each file has its last synced content, each folder its last synced names
    torn     power was cut: new names are there, but content that was not synced is cut in half

Nothing has to be stopped for this: one undisturbed pass records the disks of all points. A pass can
also be disturbed: from a point on the disk is full, or at a point no memory is left.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Tree = dict[str, bytes | None]  # path below the folder: content; None for a folder
DISKS = ("killed", "lost", "torn")
FULL_DISK, NO_MEMORY = "full disk", "no memory"
TAKES_ROOM = ("open", "write", "sync", "mkdir", "rename", "link")  # and can fail on a full disk
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Point:
    """Before one operation: its kind, where, and the disks that a crash would leave."""

    kind: str
    path: str
    disks: dict[str, Tree]


@dataclass
class Recorder:
    """Watches a folder from now on."""

    root: Path
    fail: str = ""  # "", FULL_DISK or NO_MEMORY
    at: int = -1  # the point that fails
    points: list[Point] = field(default_factory=list)
    count: int = 0
    names: dict[int, dict[str, int]] = field(default_factory=dict)  # of a folder, as synced
    content: dict[int, bytes] = field(default_factory=dict)  # of a file, as synced
    folders: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)  # open, so that no number is used again

    def __post_init__(self) -> None:
        self.root = self.root.resolve()
        for folder, _, files in os.walk(self.root):
            self.sync(Path(folder))
            for name in files:
                self.sync(Path(folder) / name)

    def sync(self, path: Path) -> None:
        """What is there now survives a power cut."""
        number = self._hold(path)
        if path.is_dir():
            inner = {each.name: self._hold(each) for each in path.iterdir()}
            self.names[number] = inner
        else:
            self.content[number] = path.read_bytes()

    def _hold(self, path: Path) -> int:
        facts = os.lstat(path)
        if facts.st_ino not in self.held and not stat.S_ISFIFO(facts.st_mode):
            self.held[facts.st_ino] = REAL.os_open(path, os.O_RDONLY | os.O_NOFOLLOW)
        if stat.S_ISDIR(facts.st_mode):
            self.folders.add(facts.st_ino)
        return facts.st_ino

    def close(self) -> None:
        for descriptor in self.held.values():
            os.close(descriptor)

    # Disks ---------------------------------------------------------------------------------------

    def disks(self) -> dict[str, Tree]:
        live = read_tree(self.root)
        torn: Tree = {}
        for name, data in live.items():
            known = None if data is None else self.content.get(os.lstat(self.root / name).st_ino)
            torn[name] = data if data is None or data == known else data[: len(data) // 2]
        lost: Tree = {}
        self._lost(os.lstat(self.root).st_ino, "", lost)
        return {"killed": live, "lost": lost, "torn": torn}

    def _lost(self, folder: int, prefix: str, found: Tree) -> None:
        for name, number in self.names.get(folder, {}).items():
            if number in self.folders:
                found[prefix + name] = None
                self._lost(number, f"{prefix}{name}/", found)
            else:
                found[prefix + name] = self.content.get(number, b"")

    # Operations ----------------------------------------------------------------------------------

    def below(self, path: Any, folder: int | None = None) -> str | None:
        """A path relative to the watched folder; None if it is elsewhere."""
        if isinstance(path, int):
            whole = os.readlink(f"/proc/self/fd/{path}").removesuffix(" (deleted)")
        else:
            whole = os.fsdecode(path)
            if folder is not None:
                whole = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), whole)
        whole = os.path.join(
            os.path.realpath(os.path.dirname(whole) or "."), os.path.basename(whole)
        )
        below = os.path.relpath(whole, self.root)
        return None if below.startswith("..") else below

    def point(self, kind: str, path: Any, folder: int | None = None) -> None:
        below = self.below(path, folder)
        if below is None:
            return
        number, self.count = self.count, self.count + 1
        if not self.fail:
            self.points.append(Point(kind, below, self.disks()))
        elif self.fail == FULL_DISK and number >= self.at and kind in TAKES_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), below)
        elif self.fail == NO_MEMORY and number == self.at:
            raise MemoryError


class _Real:
    """The functions of the system, as they were before any were watched."""

    os_open, fsync, write = os.open, os.fsync, os.write
    replace, rename, link = os.replace, os.rename, os.link
    unlink, remove, mkdir, rmdir = os.unlink, os.remove, os.mkdir, os.rmdir
    open = staticmethod(io.open)


REAL = _Real


class _WatchedFile(io.FileIO):
    """A file whose writes are points. On a full disk half of the bytes still fit."""

    recorder: Recorder

    def write(self, data: Any) -> int:
        try:
            self.recorder.point("write", self.fileno())
        except OSError:
            super().write(bytes(data)[: len(data) // 2])
            raise
        return super().write(data)


@contextlib.contextmanager
def recorded(folder: Path, fail: str = "", at: int = -1) -> Iterator[Recorder]:
    """Watch what is written below `folder`; `fail` from, or at, the point number `at`."""
    recorder = Recorder(folder, fail, at)

    def watched_open(
        file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any
    ) -> Any:
        plain = REAL.open
        if not set(mode) & set("wax+") or recorder.below(file) is None:
            return plain(file, mode, buffering, *rest, **more)
        if not isinstance(file, int):
            recorder.point("open", file)
        raw = _WatchedFile(file, mode.replace("b", "").replace("t", ""), more.pop("closefd", True))
        raw.recorder = recorder
        if buffering == 0:
            return raw
        kind: Any = io.BufferedRandom if "+" in mode else io.BufferedWriter
        return kind(raw) if "b" in mode else io.TextIOWrapper(kind(raw), *rest, **more)

    def watched_os_open(
        path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if flags & WRITING:
            recorder.point("open", path, dir_fd)
        return REAL.os_open(path, flags, mode, dir_fd=dir_fd)

    def watched_write(descriptor: int, data: Any) -> int:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            recorder.point("write", descriptor)
        return REAL.write(descriptor, data)

    def watched_fsync(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        recorder.point("sync", number)
        REAL.fsync(number)
        if recorder.below(number) is not None:
            recorder.sync(Path(os.readlink(f"/proc/self/fd/{number}")))

    def moved(kind: str, real: Callable[..., None]) -> Callable[..., None]:
        def move(
            source: Any, target: Any, *, src_dir_fd: int | None = None,
            dst_dir_fd: int | None = None, **more: Any,
        ) -> None:  # fmt: skip
            recorder.point(kind, target, dst_dir_fd)
            real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **more)

        return move

    def changed(kind: str, real: Callable[..., None]) -> Callable[..., None]:
        def change(path: Any, *rest: Any, dir_fd: int | None = None) -> None:
            recorder.point(kind, path, dir_fd)
            real(path, *rest, dir_fd=dir_fd)

        return change

    watched: dict[str, Any] = {
        "open": watched_os_open, "write": watched_write, "fsync": watched_fsync,
        "fdatasync": watched_fsync, "replace": moved("rename", REAL.replace),
        "rename": moved("rename", REAL.rename), "link": moved("link", REAL.link),
        "unlink": changed("unlink", REAL.unlink), "remove": changed("unlink", REAL.remove),
        "mkdir": changed("mkdir", REAL.mkdir), "rmdir": changed("rmdir", REAL.rmdir),
    }  # fmt: skip
    before = {name: getattr(os, name) for name in watched}
    try:
        for name, function in watched.items():
            setattr(os, name, function)
        io.open = builtins.open = watched_open
        yield recorder
    finally:
        for name, function in before.items():
            setattr(os, name, function)
        io.open = builtins.open = REAL.open  # type: ignore[assignment]
        recorder.close()


# Disks as folders --------------------------------------------------------------------------------


def read_tree(root: Path) -> Tree:
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        prefix = os.path.relpath(folder, root)
        prefix = "" if prefix == "." else f"{prefix}/"
        found |= dict.fromkeys((prefix + name for name in folders), None)
        for name in files:
            with REAL.open(os.path.join(folder, name), "rb") as file:
                found[prefix + name] = file.read()
    return found


def write_tree(tree: Tree, root: Path, ended: int) -> Path:
    """Make `root` the disk `tree`. The process that wrote it is gone: its number is `ended`."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for name, data in sorted(tree.items()):
        place = root / name.replace(f".{os.getpid()}.", f".{ended}.")
        if data is None:
            place.mkdir(exist_ok=True)
        else:
            place.write_bytes(data)
    return root


@dataclass(frozen=True)
class Crash:
    """A disk that a crash can leave, and the first point at which it does."""

    number: int
    kind: str
    path: str
    disk: str
    tree: Tree

    def __str__(self) -> str:
        return f"{self.disk}, before point {self.number}: {self.kind} {self.path}"


def crashes(points: list[Point]) -> list[Crash]:
    """Each disk once."""
    seen: dict[int, Crash] = {}
    for number, point in enumerate(points):
        for disk, tree in point.disks.items():
            key = hash(frozenset(tree.items()))
            seen.setdefault(key, Crash(number, point.kind, point.path, disk, tree))
    return list(seen.values())


def some_of_each_kind(found: list[Crash]) -> list[Crash]:
    """The last of every kind of operation on every kind of disk: the nearest to the end."""
    return list({(crash.disk, crash.kind): crash for crash in found}.values())
