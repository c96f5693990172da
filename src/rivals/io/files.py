"""Files appear whole or not at all: written beside, flushed, renamed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import yaml

from rivals.errors import RivalsError


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; a crash or a full disk leaves the old file as it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise RivalsError(
            f"Could not write {path} ({error.strerror}); make room there or choose another folder."
        ) from error


def flush_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_yaml(path: Path, value: Any) -> None:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    write_bytes(path, text.encode())


def read_json(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file, or one sentence about why there is none."""
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


class BusyError(RivalsError):
    """Another process is at work in a folder."""


class Lock:
    """One writer at a time in a folder. The system lets go of it when the process ends, however."""

    def __init__(self, folder: Path) -> None:
        self.descriptor: int | None = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise BusyError(
                f"Another process is at work in {folder}; wait for it, or stop it."
            ) from error

    def release(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __del__(self) -> None:
        self.release()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
