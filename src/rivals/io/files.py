"""Atomic writes: a file is written under a temporary name, flushed, then renamed.

`tests/crash_points.py` stops the program before each of these steps, with and without power.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from os.path import lexists
from pathlib import Path
from typing import IO, Any

from rivals.errors import RivalsError
from rivals.io.reading import is_link

CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP)  # of a file system that knows no flush of folders
HERE, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`; after a crash or on a full disk the old file is unchanged."""
    write_parts(path, (data,))


def write_parts(path: Path, parts: Iterable[bytes]) -> None:
    """The same of data that comes in parts, so that not all of it is in memory at once."""
    partial = _partial(path)
    try:
        partial.unlink(missing_ok=True)  # of a killed process that had this number
        with partial.open("xb") as file:  # never through a link that somebody put there
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        flush_folder(path.parent)
    except BaseException as error:  # memory can be used up here, too
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            raise _not_written(path, error) from error
        raise


def write_folder(folder: Path, files: Mapping[str, bytes], old: tuple[str, ...] = ()) -> None:
    """Write files that belong together: a crash leaves all of the old ones or all of the new ones.

    What a former call wrote is replaced, and so are files named in `old`. Where the folder holds
    anything else, that stays, and the files are written one after the other.
    """
    try:
        there = {path.name for path in folder.iterdir()} if folder.exists() else None
        if there is not None and there - {*files, *old}:
            for name, data in files.items():
                write_bytes(folder / name, data)
            return
        if there is not None and all(_holds(folder / name, data) for name, data in files.items()):
            return
        make_folders(folder.parent)
        partial = _partial(folder)
        remove_partial(partial)
        try:
            partial.mkdir()
            for name, data in files.items():
                write_bytes(partial / name, data)
            move_folder(partial, folder)
        finally:
            remove_partial(partial)
    except OSError as error:
        raise _not_written(folder, error) from error


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder under a temporary name, to be filled in the block; then it gets its own.

    After an error or a crash there is no `folder`. One that is there already is refused.
    """
    if lexists(folder):
        raise RivalsError(f"{folder} is there already; choose another place, or remove it first.")
    partial = _partial(folder)
    try:
        make_folders(folder.parent)
        remove_partial(partial)  # of a killed process that had this number
        partial.mkdir()
        yield partial
        if lexists(folder):  # meanwhile
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        move_folder(partial, folder)
    except OSError as error:
        raise _not_written(folder, error) from error
    finally:
        remove_partial(partial)


def move_folder(made: Path, place: Path) -> None:
    """Rename a folder to a place that may hold another, which is then at `made`.

    Linux exchanges the two at once. Elsewhere a crash in between can leave the old one at `made`.
    """
    if not place.exists():
        made.rename(place)
    elif not _exchange(made, place):
        aside = made.with_name(f"{made.name}.old")
        place.rename(aside)
        try:
            made.rename(place)
        except OSError:
            aside.rename(place)
            raise
        aside.rename(made)
    flush_folder(place.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Whether the system could exchange two names in one step."""
    if sys.platform != "linux":
        return False
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if exchange is None:  # an old C library
        return False
    words = (HERE, os.fsencode(one), HERE, os.fsencode(other), EXCHANGE)
    if exchange(*words) == 0:
        return True
    found = ctypes.get_errno()
    if found in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):  # not on this file system
        return False
    raise OSError(found, os.strerror(found), str(other))


def remove_folder(folder: Path) -> None:
    """Remove a folder with all it holds: after a crash it is there whole or not at all."""
    partial = _partial(folder)
    remove_partial(partial)
    try:
        folder.rename(partial)
    except FileNotFoundError:
        return
    flush_folder(folder.parent)
    remove_partial(partial)


def remove_abandoned(path: Path) -> None:
    """Remove what processes that were killed left of writing `path`; those that run are let be."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = left.name.removesuffix(".part").rpartition(".")[2]
        if process.isdigit() and not _runs(int(process)):
            remove_partial(left)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, and is somebody else's
        return True
    return True


def remove_partial(path: Path) -> None:
    """Remove a file or a folder that a killed process left half-written or half-removed."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


def _not_written(path: Path, error: OSError) -> RivalsError:
    return RivalsError(
        f"Could not write {path} ({error.strerror}); make room there or choose another folder."
    )


def flush_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut, where the system can flush folders."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # it may be written to, but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Make all that others wrote below `folder` survive a power cut."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            with Path(place, name).open("rb+") as file:
                os.fsync(file.fileno())
        flush_folder(Path(place))


def open_plain(path: Path, mode: str) -> IO[bytes]:
    """Open a regular file, never a link, a pipe or a device. Raises OSError.

    `mode` is "rb", "wb", "ab" or "rb+"; a new file can be read by its owner only.
    """

    def opener(name: str, flags: int) -> int:
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        number = os.open(name, flags, 0o600)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise OSError(errno.EINVAL, "it is not a regular file", name)
        return number

    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():  # Windows
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return open(path, mode, opener=opener)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_yaml(path: Path, value: Any) -> None:
    import yaml  # here: a model is read without it

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    write_bytes(path, text.encode())


def make_folders(path: Path) -> None:
    """Make a folder and those above it; a power cut does not take them away again."""
    missing, place = [], path
    while not place.exists() and place != place.parent:
        missing.append(place)
        place = place.parent
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        flush_folder(made.parent)


def make_folder(path: Path) -> None:
    """`make_folders`, with every problem in one sentence."""
    try:
        make_folders(path)
    except OSError as error:
        raise RivalsError(
            f"Could not make the folder {path} ({error.strerror}); choose another with --out."
        ) from error


def remove_files(folder: Path, matching: Callable[[str], bool]) -> None:
    """Remove the files in `folder` whose names match, where that is possible.

    If `folder` is a link or not there, nothing is removed; a link in it is removed, not followed.
    """
    with contextlib.suppress(OSError):
        if os.unlink in os.supports_dir_fd:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            descriptor = os.open(folder, flags)
            try:  # by descriptor: nobody can put a link in the place of the folder meanwhile
                for name in filter(matching, os.listdir(descriptor)):
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)
        elif not is_link(folder):
            for name in filter(matching, os.listdir(folder)):
                with contextlib.suppress(OSError):
                    (folder / name).unlink()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
