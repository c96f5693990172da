"""A model as one file: a zip file that every program opens, and that rivals reads without trust.

    parts.rivals   model.json
                   signature.json   where the model is signed
                   tasks/<checksum>.safetensors, by name

Nothing is compressed and nothing is dated, so the same model gives the same bytes on every machine,
and nothing can unpack to more than it is. No zip file is interpreted here: model.json, which comes
first, says which files follow and how long they are, so every other byte is known beforehand but
for the content of these files, which has a checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from typing import IO, Any

from rivals.errors import RivalsError
from rivals.io import signatures
from rivals.io.files import new_folder, open_plain, write_parts
from rivals.io.reading import CHUNK, read_bytes
from rivals.model import limits, manifest, stored_file
from rivals.model.folder import ModelFolder
from rivals.model.manifest import NAME, AncestorName, Description, MovedEdges, TaskFacts

ENDING = ".rivals"
LARGEST = 2**32 - 1  # bytes: a zip file without extensions cannot be larger
SIGNATURE = 2**20  # bytes of signature.json
DAY = 0x21  # the first that a zip file knows
VERSION = 20  # of the zip format
FILE = 0o100644 << 16  # a regular file that its owner may write
LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
LOCAL_FIELDS, CENTRAL_FIELDS, END_FIELDS = "<4s5H3I2H", "<4s6H3I5H2I", "<4s4H2IH"
START = struct.calcsize(LOCAL_FIELDS)
MAGIC = LOCAL + struct.pack("<5H", VERSION, 0, 0, 0, DAY)
Stored = TaskFacts | MovedEdges | AncestorName


@dataclass(frozen=True)
class PackedModel:
    """A model that was packed into one file."""

    path: Path
    bytes: int
    sha256: str
    tasks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path), "tasks": list(self.tasks)}


@dataclass(frozen=True)
class PackedFile:
    """A file in the packed one."""

    name: str
    size: int
    crc: int

    @property
    def _facts(self) -> tuple[int, ...]:
        return VERSION, 0, 0, 0, DAY, self.crc, self.size, self.size, len(self.name), 0

    def before(self) -> bytes:
        """What comes before its content."""
        return struct.pack(LOCAL_FIELDS, LOCAL, *self._facts) + self.name.encode()

    def listed(self, place: int) -> bytes:
        """Its line in the list at the end."""
        made_by = 3 << 8 | VERSION  # Unix
        facts = (CENTRAL, made_by, *self._facts, 0, 0, 0, FILE, place)
        return struct.pack(CENTRAL_FIELDS, *facts) + self.name.encode()


def ending(entries: list[PackedFile]) -> bytes:
    """The list at the end of the file."""
    lines, place = b"", 0
    for each in entries:
        lines += each.listed(place)
        place += len(each.before()) + each.size
    count = len(entries)
    return lines + struct.pack(END_FIELDS, END, 0, 0, count, count, len(lines), place, 0)


# Packing -----------------------------------------------------------------------------------------


def pack(folder: Path, out: Path) -> PackedModel:
    """Write the model in `folder` to the new file `out`; a damaged model is refused."""
    if lexists(out):
        raise RivalsError(f"{out} is there already; choose another name, or remove it first.")
    if not out.absolute().parent.is_dir():
        raise RivalsError(f"There is no folder {out.parent} for {out.name}; make it first.")
    content, raw = whole_model(folder)
    written, count = hashlib.sha256(), 0

    def parts() -> Iterator[bytes]:
        nonlocal count
        for part in _parts(folder, content, raw):
            written.update(part)
            if (count := count + len(part)) > LARGEST:
                raise RivalsError(
                    f"The model {folder} is larger than {LARGEST:,} bytes, the most that one file "
                    "can carry; copy the folder instead."
                )
            yield part

    write_parts(out, parts())
    names = tuple(task.name for task in content.tasks)
    return PackedModel(out, count, written.hexdigest(), names)


def whole_model(folder: Path) -> tuple[Description, bytes]:
    """What a model holds, and its model.json, all of its files having been checked."""
    while True:
        raw = manifest.read_raw(folder)
        model = ModelFolder(folder, manifest.parse(folder, raw))
        model.method  # noqa: B018 - loads all of it, or says what is damaged
        if raw == manifest.read_raw(folder):  # nobody learned meanwhile
            return model.description, raw


def _parts(folder: Path, content: Description, raw: bytes) -> Iterator[bytes]:
    entries = []
    for name, data in _files(folder, content, raw):
        entries.append(PackedFile(name, len(data), zlib.crc32(data)))
        yield entries[-1].before()
        yield data
    yield ending(entries)


def _files(folder: Path, content: Description, raw: bytes) -> Iterator[tuple[str, bytes]]:
    yield NAME, raw
    signed = folder / signatures.NAME
    if lexists(signed):
        yield signatures.NAME, read_bytes(signed, "signature", SIGNATURE, folder)
    for name, each in stored_files(content).items():
        what = f"the file {name}"
        yield (
            name,
            stored_file.read_stored(folder, each.file or "", each.sha256, each.bytes or 0, what),
        )


def stored_files(content: Description) -> dict[str, Stored]:
    """The files of a model beside model.json, by their place in its folder, in order."""
    others = [each for each in (content.moved, content.ancestor) if each and each.file]
    stored: list[Stored] = [*content.tasks, *others]
    return {f"{stored_file.FOLDER}/{e.file}": e for e in sorted(stored, key=lambda e: e.file or "")}


# Unpacking ---------------------------------------------------------------------------------------


def is_packed(path: Path) -> bool:
    """Whether a file says that it is a packed model."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ENDING:
        return True
    with contextlib.suppress(OSError), open_plain(Path(os.path.realpath(path)), "rb") as file:
        start = file.read(START + len(NAME))
        return start.startswith(MAGIC) and start[START:] == NAME.encode()
    return False


def unpack(path: Path, folder: Path, key: Path | None = None) -> Description:
    """Bring a packed model into the new folder `folder`, checked as every foreign model is.

    With the file of a public `key`, the model must be signed with its private key. A kill at any
    moment leaves no folder, or all of it.
    """
    with new_folder(folder) as made:
        extract(path, made)
        with in_place_of(made, path):
            return accept(made, key)


def accept(made: Path, key: Path | None = None) -> Description:
    """What the model in a folder from elsewhere holds; what is unsigned or damaged is refused."""
    content = manifest.read(made, key)
    model = ModelFolder(made, content)
    model.method  # noqa: B018 - loads all of it, or says what is damaged
    return content


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The model in a packed file as a folder, while the block lasts."""
    try:
        room = tempfile.TemporaryDirectory(prefix="rivals-")
    except OSError as error:
        raise RivalsError(
            f"There is no place for temporary files ({error.strerror}); make room there."
        ) from error
    with room as place:
        extract(path, Path(place))
        yield Path(place)


@contextlib.contextmanager
def in_place_of(made: Path, path: Path) -> Iterator[None]:
    """Errors of the block name what the user named, not the temporary folder."""
    try:
        yield
    except RivalsError as error:
        said = str(error).replace(str(made), str(path))
        raise type(error)(said) from error


def extract(path: Path, folder: Path) -> None:
    """Write the files of a packed model into an empty folder, after their sizes were checked."""
    try:
        file = open_plain(Path(os.path.realpath(path)), "rb")
    except OSError as error:
        raise RivalsError(
            f"The packed model {path} cannot be read ({error.strerror}); name a file that `rivals "
            "pack` wrote."
        ) from error
    with file:
        try:
            _extract(file, path, folder)
        except OSError as error:
            raise RivalsError(
                f"The packed model {path} could not be unpacked ({error.strerror}); make room on "
                "the disk, or choose another place."
            ) from error


def _extract(file: IO[bytes], path: Path, folder: Path) -> None:
    length = os.fstat(file.fileno()).st_size
    entries = [_next(file, path, NAME, limits.DESCRIPTION)]
    raw = file.read(entries[0].size)
    _check_crc(path, entries[0], zlib.crc32(raw))
    content, at = manifest.parse(path, raw), file.tell()
    files, signature = stored_files(content), b""
    if file.read(START + len(signatures.NAME))[START:] == signatures.NAME.encode():
        file.seek(at)
        entries.append(_next(file, path, signatures.NAME, SIGNATURE))
        signature = file.read(entries[1].size)
        _check_crc(path, entries[1], zlib.crc32(signature))
    else:
        file.seek(at)
    expected = [PackedFile(name, each.bytes or 0, 0) for name, each in files.items()]
    rest = sum(len(each.before()) + each.size for each in expected)
    whole = file.tell() + rest + len(ending(entries + expected))
    if length != whole or len(files) != len(content.files()):
        raise _refused(path, f"it has {length:,} bytes, but its {NAME} asks for {whole:,}")
    check_room(folder, length)
    (folder / stored_file.FOLDER).mkdir()
    for name, each in files.items():
        entries.append(_next(file, path, name, each.bytes or 0))
        write_parts(folder / name, _content(file, path, entries[-1], each.sha256))
    if file.read() != ending(entries):
        raise _refused(path, "the list of files at its end is another one")
    if signature:
        write_parts(folder / signatures.NAME, (signature,))
    write_parts(folder / NAME, (raw,))


def _next(file: IO[bytes], path: Path, name: str, most: int) -> PackedFile:
    """The header of the file that must come next, of `most` bytes at most."""
    header = file.read(START + len(name))
    if len(header) < START or not header.startswith(MAGIC):
        raise _refused(path, f"{name} does not begin where it should")
    crc, size = struct.unpack_from("<2I", header, len(MAGIC))
    found = PackedFile(name, size, crc)
    if header != found.before() or size > most:
        raise _refused(path, f"{name} does not come where it should, or is too large")
    return found


def _content(file: IO[bytes], path: Path, entry: PackedFile, sha256: str) -> Iterator[bytes]:
    """The content of a file, part by part; its checksums are compared at the end."""
    left, crc, found = entry.size, 0, hashlib.sha256()
    while left:
        part = file.read(min(CHUNK, left))
        if not part:
            raise _refused(path, "it ends too early")
        left -= len(part)
        crc = zlib.crc32(part, crc)
        found.update(part)
        yield part
    _check_crc(path, entry, crc)
    if found.hexdigest() != sha256:
        raise _refused(path, f"{entry.name} has another checksum than {NAME} says")


def _check_crc(path: Path, entry: PackedFile, crc: int) -> None:
    if crc != entry.crc:
        raise _refused(path, f"{entry.name} has another checksum than it says")


def check_room(folder: Path, size: int) -> None:
    """Refuse to begin where the disk is too small."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise RivalsError(
            f"The model takes {size:,} bytes on disk, but only {free:,} are free; make room, or "
            "choose another place."
        )


def _refused(path: Path, why: str) -> RivalsError:
    return RivalsError(
        f"The packed model {path} is damaged, or `rivals pack` did not write it: {why}; get "
        "another copy."
    )
