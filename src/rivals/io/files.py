"""Atomic writes: a file is written under a temporary name, flushed, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import yaml

from rivals.errors import RivalsError
from rivals.io.reading import is_link

CANNOT_FLUSH = (errno.EINVAL, errno.ENOTSUP)  # of a file system that knows no flush of folders


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`; after a crash or on a full disk the old file is unchanged."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.unlink(missing_ok=True)  # of a killed process that had this number
        with partial.open("xb") as file:  # never through a link that somebody put there
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise RivalsError(
            f"Could not write {path} ({error.strerror}); make room there or choose another folder."
        ) from error


def flush_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut, where the system can flush folders."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_FLUSH:
            raise
    finally:
        os.close(descriptor)


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
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    write_bytes(path, text.encode())


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON file that holds an object; `what` names the file in error messages."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise RivalsError(f"Could not read the {what} {path} ({error.strerror}).") from error
    except ValueError as error:
        raise RivalsError(f"The {what} {path} is damaged: it is not valid JSON.") from error
    if not isinstance(value, dict):
        raise RivalsError(f"The {what} {path} is damaged: it holds no JSON object.")
    return value


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
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
