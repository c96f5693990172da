"""Atomic writes: a file is written under a temporary name, flushed, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import yaml

from rivals.errors import RivalsError

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


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
