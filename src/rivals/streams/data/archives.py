"""One interface for zip files, tar files and folders. Members are read, never unpacked to disk.

An archive is refused if a name points outside it, if it holds a link or a device, if it unpacks to
far more bytes than it has (a "zip bomb"), or if it is damaged.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rivals.errors import RivalsError
from rivals.io.reading import read_bytes

RATIO = 100  # largest unpacked size / packed size; images and CIFAR's pickles stay below 5
ALWAYS_ALLOWED = 16 * 2**20  # bytes; empty files of a small archive exceed the ratio
TOTAL = 2**30  # unpacked bytes; the largest official archive has 0.5 GiB
MEMBERS = 500_000  # the largest official archive has 120,609
MEMBER = 192 * 2**20  # bytes of one member; CIFAR-100's training images have 148 MiB
INDEX = 64 * 2**20  # bytes of the index of a zip file; the largest official one has 17 MB
BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    struct.error,
    NotImplementedError,
    RuntimeError,
    UnicodeError,
    ValueError,
)


class Members(ABC):
    """The regular files in an archive or a folder, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all regular files, sorted."""

    @abstractmethod
    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
        """(name, bytes) of the wanted files (all if None), in the order that reads fastest."""

    def close(self) -> None:
        """Close open files."""


def _safe(path: Path, name: str) -> str:
    """The normalised name; a name that points outside the archive is refused."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if name.startswith(("/", "\\")) or ".." in parts or ":" in name[:3] or "\0" in name:
        raise RivalsError(
            f"{path} has a member named '{name[:80]}' that points outside the archive; "
            "official archives have none, so fetch the official file again."
        )
    return str(PurePosixPath(*parts)) if parts else ""


def _bomb(path: Path, size: int) -> RivalsError:
    return RivalsError(
        f"{path} unpacks to {size:,} bytes or more from {path.stat().st_size:,}, far beyond the "
        f"{RATIO}:1 that is expected of images; fetch the official file again."
    )


def _limit(path: Path) -> int:
    return min(TOTAL, max(ALWAYS_ALLOWED, RATIO * path.stat().st_size))


def _too_large(path: Path, name: str, size: int, most: int) -> RivalsError:
    return RivalsError(
        f"{path} has '{name[:80]}' of {size:,} bytes, but no official file has more than "
        f"{most:,}; fetch the official file again."
    )


def _link(path: Path, name: str) -> RivalsError:
    return RivalsError(
        f"{path} has '{name[:80]}' that is a link or a device, but only regular files are read; "
        "replace it by the file itself or fetch the official file again."
    )


class ZipMembers(Members):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        _check_index(path)
        self.zip = zipfile.ZipFile(path)
        self.infos: dict[str, zipfile.ZipInfo] = {}
        infos = self.zip.infolist()
        total = sum(info.file_size for info in infos)
        if total > _limit(path) or len(infos) > MEMBERS:
            raise _bomb(path, total)
        for info in infos:
            name = _safe(path, info.filename)
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _link(path, name)
            if not info.is_dir():
                self.infos[name] = info

    def names(self) -> list[str]:
        return sorted(self.infos)

    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
        for name in self.infos if wanted is None else wanted:
            if self.infos[name].file_size > MEMBER:
                raise _too_large(self.path, name, self.infos[name].file_size, MEMBER)
            # zipfile stops at the size in the index; a longer stream then fails its CRC
            yield name, self.zip.read(self.infos[name])

    def close(self) -> None:
        self.zip.close()


def _check_index(path: Path) -> None:
    """Refuse an index that is far larger than any official one: zipfile reads it as a whole."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2**16 - 22))  # a comment of 64 KiB may follow it
        tail = file.read()
    record = tail.rfind(b"PK\x05\x06")
    if 0 <= record <= len(tail) - 22:
        size = int.from_bytes(tail[record + 12 : record + 16], "little")
        # 0xffffffff: a file of more than 4 GiB or of 65,536 members has a larger record before it
        large = tail.rfind(b"PK\x06\x06", 0, record)
        if large >= 0:
            size = max(size % 0xFFFFFFFF, int.from_bytes(tail[large + 40 : large + 48], "little"))
        if size > INDEX:
            raise _too_large(path, "index", size, INDEX)


class _Bounded(io.RawIOBase):
    """Limits the unpacked size while reading, since a tar file has no index of sizes."""

    def __init__(self, path: Path, stream: gzip.GzipFile | io.BufferedReader) -> None:
        self.path, self.stream = path, stream
        self.limit, self.count = _limit(path), 0

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(size)
        self.count += len(data)
        if self.count > self.limit:
            raise _bomb(self.path, self.count)
        return data


class TarMembers(Members):
    """Read from front to back, since gzip cannot seek."""

    def names(self) -> list[str]:
        return sorted(name for name, _ in self.each())

    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
        packed = self.path.name.endswith("gz")
        with gzip.open(self.path) if packed else self.path.open("rb") as stream:
            bounded = _Bounded(self.path, stream)
            with tarfile.open(fileobj=bounded, mode="r|") as tar:
                for count, info in enumerate(tar):
                    name = _safe(self.path, info.name)
                    if count > MEMBERS:
                        raise _bomb(self.path, bounded.count)
                    if info.isdir():
                        continue
                    file = tar.extractfile(info) if info.isreg() else None
                    if file is None:
                        raise _link(self.path, name)
                    if wanted is None or name in wanted:
                        if info.size > MEMBER:
                            raise _too_large(self.path, name, info.size, MEMBER)
                        yield name, file.read()
            while bounded.read(2**20):  # read to the end, where the checksum of gzip is
                pass


def plain_files(folder: Path) -> list[tuple[str, os.DirEntry[str]]]:
    """(name, entry) of every file below `folder`, sorted; a name starts with the folder's name."""
    found, pending = [], [(folder.name, str(folder))]
    while pending:
        inner, path = pending.pop()
        with os.scandir(path) as entries:
            for entry in entries:
                name = f"{inner}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append((name, entry.path))
                elif entry.is_file(follow_symlinks=False):
                    found.append((name, entry))
                else:
                    raise _link(folder, entry.name)
                if len(found) + len(pending) > MEMBERS:
                    raise RivalsError(
                        f"{folder} holds more than {MEMBERS:,} files, and no official data set "
                        "does; name another folder with --data DIR."
                    )
    return sorted(found, key=lambda pair: pair[0])


class FolderMembers(Members):
    def names(self) -> list[str]:
        return [name for name, _ in plain_files(self.path)]

    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
        for name in self.names() if wanted is None else wanted:
            yield name, read_bytes(self.path.parent / name, "file", MEMBER, self.path)


@contextmanager
def damage_in_words(path: Path, what: str, broken: tuple[type[Exception], ...]) -> Iterator[None]:
    """Errors that a damaged file brings, and those of the disk, as a RivalsError."""
    try:
        yield
    except broken as error:
        raise RivalsError(
            f"{path} is cut short or damaged ({type(error).__name__}), but a whole {what} was "
            "expected; remove it and fetch the official file again."
        ) from None
    except OSError as error:
        raise RivalsError(
            f"{path} could not be read ({error.strerror or error}); check the file and the disk."
        ) from None


@contextmanager
def open_members(path: Path) -> Iterator[Members]:
    """Open a zip file, a tar file (gzip or not) or a folder; damage becomes a RivalsError."""
    members: Members | None = None
    try:
        with damage_in_words(path, "archive", BROKEN):
            if path.is_dir():
                members = FolderMembers(path)
            elif path.suffix == ".zip":
                members = ZipMembers(path)
            else:
                members = TarMembers(path)
            yield members
    finally:
        if members is not None:
            members.close()
