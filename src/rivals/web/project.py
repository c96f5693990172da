"""A project as one file: all collected pictures, to take along or to go on with elsewhere.

    project.json                              {"format": 1, "model": its name}
    pictures/<task>/<class>/<checksum>.png    as they were uploaded

It is a zip. One that is opened may come from anybody: its table of contents, names, sizes and kinds
of entries are checked before anything is read, and every picture is decoded before it is stored.
"""

from __future__ import annotations

import contextlib
import io
import json
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rivals.errors import RivalsError
from rivals.io.reading import UnreadableError, parse_json, printable, read_bytes
from rivals.web.collection import Collection, Limits, NewPicture, too_large

FORMAT = 1
MANIFEST = "project.json"
MANIFEST_BYTES = 64 * 2**10
OVERHEAD = 2**20  # bytes of a zip beside its pictures and its table of contents
ENTRY = 2**10  # bytes in the table of contents, at most, for each picture
END = 22  # bytes of the end of a zip without a comment
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def most_bytes(limits: Limits) -> int:
    """The largest file that can be a project."""
    return limits.bytes + limits.pictures * 2 * ENTRY + OVERHEAD


def temporary(folder: Path) -> IO[bytes]:
    """A file without a name, which is gone when it is closed, also by a kill."""
    return tempfile.TemporaryFile(dir=folder)


@contextlib.contextmanager
def disk_in_words() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RivalsError(
            f"The disk of the server refused the project ({error.strerror}); make room there."
        ) from error


def pack(collection: Collection, model: str, out: IO[bytes]) -> None:
    """Write all collected pictures; those that are removed meanwhile are left out."""
    limit = collection.limits.picture_bytes
    with disk_in_words(), zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(MANIFEST, json.dumps({"format": FORMAT, "model": model}))
        for task, name, picture in collection.places():
            path = collection.folder / task / name / picture
            with contextlib.suppress(UnreadableError):
                data = read_bytes(path, "picture", limit, collection.folder)
                archive.writestr(f"pictures/{task}/{name}/{picture}", data)


def unpack(collection: Collection, file: IO[bytes]) -> list[str]:
    """Add the tasks of a project to the collection, all or none; returns their names."""
    limits = collection.limits
    try:
        check_end(file, limits)
        with zipfile.ZipFile(file) as archive:
            entries = checked(archive, limits)
            return collection.add_tasks(_pictures(archive, entries, limits))
    except DAMAGE as error:
        raise no_project("it is damaged") from error


def check_end(file: IO[bytes], limits: Limits) -> None:
    """Check how large the table of contents is before it is read."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - END - 20))
    tail = file.read(END + 20)
    end = tail[-END:]
    if len(end) < END or end[:4] != b"PK\5\6" or end[-2:] != b"\0\0":
        raise no_project("it is no zip, or one with a comment")
    if tail[:4] == b"PK\6\7":
        raise no_project("it is a zip of 64 bits")
    count, table = int.from_bytes(end[10:12], "little"), int.from_bytes(end[12:16], "little")
    most = 2 * limits.pictures + 1  # with entries for folders
    if count > most or table > most * ENTRY:
        raise no_project(f"it has {count:,} entries, more than can be collected here")
    file.seek(0)


def checked(archive: zipfile.ZipFile, limits: Limits) -> list[zipfile.ZipInfo]:
    """The entries that are pictures; nothing of them was read yet."""
    entries = [each for each in archive.infolist() if not each.is_dir()]
    names = [each.filename for each in entries]
    if len(set(names)) < len(names):
        raise no_project("a name occurs twice")
    for each in entries:
        shown, kind = printable(each.filename, 100), each.external_attr >> 16
        if kind and stat.S_IFMT(kind) not in (0, stat.S_IFREG):
            raise no_project(f"'{shown}' is no regular file")
        if each.flag_bits & 1:
            raise no_project(f"'{shown}' is encrypted")
        if each.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise no_project(f"'{shown}' is compressed in an unusual way")
        if each.filename != MANIFEST and not _is_picture(each.filename):
            raise no_project(f"'{shown}' is no picture of a class")
        if each.file_size > limits.picture_bytes:
            raise RivalsError(too_large(each.file_size, limits.picture_bytes))
    if MANIFEST not in names:
        raise no_project(f"it has no {MANIFEST}")
    with archive.open(MANIFEST) as file:
        facts = parse_json(file.read(MANIFEST_BYTES), f"The {MANIFEST} of the project")
    if facts.get("format") != FORMAT:
        raise no_project("it was made by another version")
    return [each for each in entries if each.filename != MANIFEST]


def _is_picture(name: str) -> bool:
    """Whether it lies where pictures lie. What task and class may be called is checked later."""
    parts = name.split("/")
    return len(parts) == 4 and parts[0] == "pictures" and "\\" not in name and all(parts)


def _pictures(
    archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], limits: Limits
) -> Iterator[NewPicture]:
    for entry in entries:
        _, task, name, filename = entry.filename.split("/")
        with archive.open(entry) as file:
            data = file.read(limits.picture_bytes + 1)  # whatever size was stated
        yield NewPicture(task, name, data, printable(filename))


def no_project(why: str) -> RivalsError:
    return RivalsError(f"This is no project of rivals: {why}; choose one that a page downloaded.")
