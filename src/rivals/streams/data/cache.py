"""Cache of decoded data sets: .npy files that are memory-mapped.

An entry is a folder named after the data set and a key (checksums of the source, image size, cache
format). It is written under a temporary name, flushed and renamed, so it is complete or absent.
`entry.json` has the size, modification time and digest of each array. If a file was modified, its
digest is computed again; an entry that does not match is deleted and decoded again. The digest of
each image is stored too, so that duplicates are found without reading pixels.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.files import flush_folder
from rivals.io.reading import read_json
from rivals.streams.data.decoded import Decoded
from rivals.streams.data.find import cache_folder
from rivals.streams.data.progress import bar

FORMAT = 1  # increase it when a reader's pixels or order change


@dataclass(frozen=True)
class Entry:
    """A data set in the cache: `arrays["train-images"]` and so on; images are memory-mapped."""

    classes: tuple[str, ...]
    counts: dict[str, list[int]]
    arrays: dict[str, NDArray[Any]]


def place(name: str, key: str) -> Path:
    """The folder of the entry for `name` under `key`."""
    return cache_folder() / "decoded" / f"{name}-{key}"


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _write_array(path: Path, shape: tuple[int, ...], dtype: Any, chunks: Iterable[Any]) -> None:
    """Write with `write`, not through a memory map: a full disk is then an error, not a crash."""
    count = 0
    with path.open("wb") as file:
        descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
        header = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            if chunk.shape[1:] != shape[1:] or chunk.dtype != dtype:
                raise RivalsError(
                    f"Decoding gave {chunk.dtype} {chunk.shape[1:]}, but {np.dtype(dtype)} "
                    f"{shape[1:]} was expected; fetch the official file again."
                )
            file.write(np.ascontiguousarray(chunk).data)
            count += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    if count != shape[0]:
        raise RivalsError(
            f"Decoding gave {count:,} images, but {shape[0]:,} were expected; "
            "fetch the official file again."
        )


def _write(folder: Path, title: str, decoded: Decoded) -> None:
    files: dict[str, Any] = {}
    total = len(decoded.train.labels) + len(decoded.test.labels)
    with bar(f"decoding {title}", total) as advance:

        def counted(chunks: Iterable[Any], marks: list[bytes]) -> Iterable[Any]:
            for chunk in chunks:
                yield chunk
                marks += [
                    hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in chunk
                ]
                advance(len(chunk))

        for word, split in (("train", decoded.train), ("test", decoded.test)):
            images, marks = (len(split.labels), *split.shape), list[bytes]()
            pixels = counted(split.chunks, marks)
            _write_array(folder / f"{word}-images.npy", images, np.uint8, pixels)
            digests = np.frombuffer(b"".join(marks), np.int64)
            for name, values in {"labels": split.labels, "digests": digests, **split.extra}.items():
                _write_array(folder / f"{word}-{name}.npy", values.shape, values.dtype, [values])
    for path in sorted(folder.glob("*.npy")):
        facts = path.stat()
        files[path.stem] = [facts.st_size, facts.st_mtime_ns, _digest(path)]
    entry = {"format": FORMAT, "classes": decoded.classes, "counts": decoded.counts()}
    with (folder / "entry.json").open("w", encoding="utf-8") as file:
        json.dump({**entry, "files": files}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def read(folder: Path, thorough: bool = False) -> Entry | None:
    """The entry in `folder`, or None if it is missing or was changed."""
    try:
        facts = read_json(folder / "entry.json", "cache entry")
        arrays: dict[str, NDArray[Any]] = {}
        for name, (size, changed, digest) in facts["files"].items():
            path = folder / f"{name}.npy"
            seen = path.stat()
            touched = seen.st_mtime_ns != changed
            if seen.st_size != size or ((touched or thorough) and _digest(path) != digest):
                return None
            mapped = "r" if name.endswith("-images") else None
            arrays[name] = np.load(path, mmap_mode=mapped, allow_pickle=False)  # type: ignore[arg-type]
        for word in ("train", "test"):
            if len(arrays[f"{word}-images"]) != len(arrays[f"{word}-labels"]):
                return None
        return Entry(tuple(facts["classes"]), facts["counts"], arrays)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, EOFError, RivalsError):
        return None


def discard(folder: Path) -> None:
    """Delete an entry; processes that have it mapped keep their data."""
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Delete incomplete entries of killed processes."""
    if os.name == "nt":  # os.kill would end a process there instead of asking for it
        return
    for part in parent.glob(".*.part"):
        pid = part.name.split(".")[-2]
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(part, ignore_errors=True)
        except (ValueError, OSError):
            continue


def fetch(title: str, folder: Path, decode: Callable[[], Decoded]) -> Entry:
    """The entry in `folder`; decoded if it is missing or damaged."""
    if (found := read(folder)) is not None:
        return found
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    old = folder.with_name(f".{folder.name}.old.{os.getpid()}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        _write(part, title, decode())
        if folder.exists() and read(folder) is None:
            os.rename(folder, old)
        try:
            os.rename(part, folder)
        except OSError:
            # another process may have been faster: its entry is the same
            if read(folder) is None:
                raise
        with contextlib.suppress(OSError):
            flush_folder(folder.parent)
    except OSError as error:
        raise RivalsError(
            f"The cache {folder.parent} could not be written ({error.strerror or error}); make "
            "room there or set $RIVALS_CACHE to another folder."
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    if (made := read(folder)) is None:
        raise RivalsError(
            f"The cache entry {folder} does not read back as it was written; check the disk or set "
            "$RIVALS_CACHE to another folder."
        )
    return made
