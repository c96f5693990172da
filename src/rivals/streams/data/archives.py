"""Zip, tar and folder behind one face. Nothing is ever unpacked to disk: members are read.

A name that leads out of it, a link, a device, a bomb's ratio or a broken stream refuses it whole.
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

RATIO = 100  # unpacked bytes for each packed one; images and CIFAR's pickles stay below 5
FREE = 16 * 2**20  # small archives may exceed the ratio up to this size: empty files pack well
TOTAL = 4 * 2**30  # bytes in all; the largest official archive unpacks to 0.5 GiB
MEMBERS = 500_000  # the largest official archive has 120,609
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
    """The plain files in an archive or a folder, by their names in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all plain files, sorted."""

    @abstractmethod
    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
        """(name, bytes) of the wanted files (all if None), in the order that is quick to read."""

    def close(self) -> None:
        """Closes what is open."""


def _safe(path: Path, name: str) -> str:
    """`name` if it stays inside the archive."""
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
    return min(TOTAL, max(FREE, RATIO * path.stat().st_size))


def _link(path: Path, name: str) -> RivalsError:
    return RivalsError(
        f"{path} has '{name[:80]}' that is a link or a device, but only plain files are read; "
        "replace it by the file itself or fetch the official file again."
    )


class ZipMembers(Members):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
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
            # a member whose stream is longer than its entry says is cut there and fails its CRC
            yield name, self.zip.read(self.infos[name])

    def close(self) -> None:
        self.zip.close()


class _Bounded(io.RawIOBase):
    """A stream that stops a bomb while it unpacks, for tar has no table of sizes in front."""

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
    """Read as a stream, from front to back: gzip has no way to jump."""

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
                        yield name, file.read()
            while bounded.read(2**20):  # to the end, where gzip keeps its checksum
                pass


def plain_files(folder: Path) -> list[tuple[str, os.DirEntry[str]]]:
    """(name, entry) of every file below `folder`, sorted; names begin with the folder's own."""
    found, waiting = [], [(folder.name, str(folder))]
    while waiting:
        inner, place = waiting.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                name = f"{inner}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((name, entry.path))
                elif entry.is_file(follow_symlinks=False):
                    found.append((name, entry))
                else:
                    raise _link(folder, entry.name)
    return sorted(found, key=lambda pair: pair[0])


class FolderMembers(Members):
    def names(self) -> list[str]:
        return [name for name, _ in plain_files(self.path)]

    def each(self, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes]]:
        for name in self.names() if wanted is None else wanted:
            yield name, (self.path.parent / name).read_bytes()


@contextmanager
def open_members(path: Path) -> Iterator[Members]:
    """The members of a zip, a tar (gzip or not) or a folder; what breaks becomes one sentence."""
    members: Members | None = None
    try:
        if path.is_dir():
            members = FolderMembers(path)
        elif path.suffix == ".zip":
            members = ZipMembers(path)
        else:
            members = TarMembers(path)
        yield members
    except BROKEN as error:
        raise RivalsError(
            f"{path} is cut short or damaged ({type(error).__name__}), but a whole archive was "
            "expected; remove it and fetch the official file again."
        ) from None
    except OSError as error:
        raise RivalsError(
            f"{path} could not be read ({error.strerror or error}); check the file and the disk."
        ) from None
    finally:
        if members is not None:
            members.close()
