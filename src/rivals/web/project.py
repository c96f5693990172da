"""A project as one file: all collected pictures and the model, to go on with elsewhere.

    project.json                              {"format": 1, "model": its name}
    model.rivals                              what was learned, packed (model/packing.py)
    pictures/<task>/<class>/<checksum>.png    as they were uploaded

It is a zip. One that is opened may come from anybody: its table of contents, names, sizes and kinds
of entries are checked before anything is read, every picture is decoded before it is stored, and
the model is checked as every foreign one. A model that is there already is never replaced.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from typing import IO, Any

from rivals.errors import RivalsError
from rivals.io.files import new_folder
from rivals.io.reading import UnreadableError, parse_json, printable, read_bytes
from rivals.model.manifest import exists
from rivals.web.collection import Collection, Limits, NewPicture, too_large

FORMAT = 1
MANIFEST, MODEL = "project.json", "model.rivals"
MODEL_BYTES = 2**28
MANIFEST_BYTES = 64 * 2**10
OVERHEAD = 2**20  # bytes of a zip beside its pictures and its table of contents
ENTRY = 2**10  # bytes in the table of contents, at most, for each picture
END = 22  # bytes of the end of a zip without a comment
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def most_bytes(limits: Limits) -> int:
    """The largest file that can be a project."""
    return limits.bytes + limits.pictures * 2 * ENTRY + MODEL_BYTES + OVERHEAD


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


@dataclass(frozen=True)
class OpenedProject:
    """What came with a project."""

    tasks: list[str]  # whose pictures are collected here now
    model: bool  # whether its model is the page's model now

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


def pack(collection: Collection, model: Path, out: IO[bytes]) -> None:
    """Write the model and all collected pictures, but for those that are removed meanwhile."""
    limit = collection.limits.picture_bytes
    with disk_in_words(), zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(MANIFEST, json.dumps({"format": FORMAT, "model": model.name}))
        if exists(model):
            from rivals.model import packing  # with torch, which a server without a model spares

            with tempfile.TemporaryDirectory(dir=collection.folder.parent) as room:
                packed = packing.pack(model, Path(room) / MODEL)
                if packed.bytes > MODEL_BYTES:
                    raise RivalsError(
                        f"The model has {packed.bytes / 2**20:,.0f} MB, more than the "
                        f"{MODEL_BYTES / 2**20:,.0f} that a project can carry; use `rivals pack`."
                    )
                archive.write(packed.path, MODEL)
        for task, name, picture in collection.places():
            path = collection.folder / task / name / picture
            with contextlib.suppress(UnreadableError):
                data = read_bytes(path, "picture", limit, collection.folder)
                archive.writestr(f"pictures/{task}/{name}/{picture}", data)


def unpack(collection: Collection, model: Path, file: IO[bytes]) -> OpenedProject:
    """Collect the pictures of a project and, if there is none at `model`, take its model."""
    limits = collection.limits
    try:
        check_end(file, limits)
        with zipfile.ZipFile(file) as archive, contextlib.ExitStack() as stack:
            entries = checked(archive, limits)
            takes = MODEL in archive.namelist() and not lexists(model)
            if takes:
                made = stack.enter_context(new_folder(model))  # gets its name when all is well
                _take_model(archive, made, collection.folder.parent)
            pictures = _pictures(archive, entries, limits)
            tasks = collection.add_tasks(pictures) if entries or not takes else []
        return OpenedProject(tasks, takes)
    except DAMAGE as error:
        raise no_project("it is damaged") from error


def _take_model(archive: zipfile.ZipFile, made: Path, beside: Path) -> None:
    """Unpack the model of a project into the folder `made`, checked as every foreign model is."""
    from rivals.model import packing

    with tempfile.TemporaryDirectory(dir=beside) as room:
        path = Path(room) / MODEL
        with archive.open(MODEL) as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file)  # its size was checked, and zipfile holds it to that
        place = Path(MODEL)
        with packing.in_place_of(path, place), packing.in_place_of(made, place):
            packing.extract(path, made)
            packing.accept(made)


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
    most = 2 * limits.pictures + 2  # with entries for folders
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
        if each.filename not in (MANIFEST, MODEL) and not _is_picture(each.filename):
            raise no_project(f"'{shown}' is no picture of a class")
        if each.filename == MODEL and each.file_size > MODEL_BYTES:
            raise no_project(f"its model has more than {MODEL_BYTES / 2**20:,.0f} MB")
        if each.filename != MODEL and each.file_size > limits.picture_bytes:
            raise RivalsError(too_large(each.file_size, limits.picture_bytes, shown))
    if MANIFEST not in names:
        raise no_project(f"it has no {MANIFEST}")
    with archive.open(MANIFEST) as file:
        facts = parse_json(file.read(MANIFEST_BYTES), f"The {MANIFEST} of the project")
    if facts.get("format") != FORMAT:
        raise no_project("it was made by another version")
    return [each for each in entries if each.filename not in (MANIFEST, MODEL)]


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
