"""MD5 of source files, cached by path, size and modification time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.reading import read_json
from rivals.streams.data.archives import plain_files
from rivals.streams.data.find import cache_folder


def file_md5(path: Path) -> str:
    """The MD5 of one file, as the official pages publish it: it detects damage, not forgery."""
    return _file_digest(path, hashlib.md5(usedforsecurity=False))


def file_sha256(path: Path) -> str:
    """The SHA-256 of one file, which nobody can forge."""
    return _file_digest(path, hashlib.sha256())


def _file_digest(path: Path, digest: hashlib._Hash) -> str:
    try:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
        return digest.hexdigest()
    except OSError as error:
        raise RivalsError(
            f"{path} could not be read ({error.strerror or error}); check the file and the disk."
        ) from None


def _store() -> Path:
    return cache_folder() / "checksums.json"


def _read_store() -> dict[str, list[str]]:
    try:
        return read_json(_store(), "list of checksums")
    except RivalsError:
        return {}


def _write_store(path: Path, state: str, md5: str) -> None:
    held = {**_read_store(), str(path): [state, md5]}
    beside = _store().with_name(f"checksums.{os.getpid()}.part")
    # without this cache the checksum is only computed again next time
    with contextlib.suppress(OSError):
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(held, indent=1, sort_keys=True), "utf-8")
        os.replace(beside, _store())


def _state(path: Path) -> str:
    """Changes whenever the file, or any file in the folder, changes."""
    if not path.is_dir():
        facts = path.stat()
        return f"{facts.st_size}:{facts.st_mtime_ns}"
    digest = hashlib.blake2b(digest_size=16)
    for name, entry in plain_files(path):
        facts = entry.stat(follow_symlinks=False)
        digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def checksum(path: Path, again: bool = False) -> str:
    """The MD5 of a file, or of the names and contents of a folder; `again` ignores the cache."""
    full = path.resolve()
    try:
        state = _state(full)
    except OSError as error:
        raise RivalsError(
            f"{path} could not be read ({error.strerror or error}); check the file and the disk."
        ) from None
    match _read_store().get(str(full)):
        case [str(known), str(md5)] if known == state and not again:
            return md5
    if full.is_dir():
        digest = hashlib.md5(usedforsecurity=False)
        for name, entry in plain_files(full):
            digest.update(f"{name}\0{file_md5(Path(entry.path))}\n".encode())
        md5 = digest.hexdigest()
    else:
        md5 = file_md5(full)
    _write_store(full, state, md5)
    return md5
