"""A sink that moves files: FOLDER/TASK/CLASS/NAME, so that FOLDER/TASK can be learned from.

No file is lost, and none is overwritten: a free name is reserved by an empty file, and the picture
is renamed over it. On another disk it is copied and flushed, then renamed, and only then removed
where it was. A kill in between leaves the picture where it was, or in both places.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.files import flush_folder, make_folders, open_plain
from rivals.io.reading import check_no_links
from rivals.watch.folder_source import stamp_of
from rivals.watch.frame import FileStamp, Notices, Sighting

MOST_NAMES = 10_000  # pictures of one name in a class


class ClassFolders:
    """Moves each picture to the folder of its class; what is rejected stays where it is."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notices = folder, Notices()
        if folder.exists() and not folder.is_dir():
            raise RivalsError(f"{folder} is a file, but --sort needs a folder.")

    def send(self, sighting: Sighting) -> None:
        answer, path, stamp = sighting.answer, sighting.frame.path, sighting.frame.stamp
        if answer is None or answer.rejected or path is None or stamp is None:
            return
        try:
            place = self._place(answer.task, answer.label)
            move(path, place, stamp)
        except OSError as error:
            why = error.strerror or type(error).__name__
            self.notices.trouble(f"{path} could not be moved ({why}); it stays where it is.")
        except RivalsError as error:
            self.notices.trouble(f"{path} stays where it is: {error}")
        else:
            self.notices.well(f"Pictures are moved to {self.folder} again.")

    def _place(self, task: str, label: str) -> Path:
        place = self.folder / part_of_path(task) / part_of_path(label)
        check_no_links(self.folder, place, "folder of a class")
        make_folders(place)
        return place

    def close(self) -> None:
        """Nothing is open."""


def part_of_path(name: str) -> str:
    """A name of a class as one folder, whatever is in it."""
    plain = "".join(
        "_" if sign in '/\\:*?"<>|' or not sign.isprintable() else sign for sign in name
    )
    return plain.strip(" .") or "_"


def move(path: Path, place: Path, stamp: FileStamp) -> Path | None:
    """Move a file into a folder; None if it is not the one that was answered any more."""
    if stamp_of(os.lstat(path)) != stamp:
        return None
    reserved = _reserve(place, path)
    try:
        try:
            os.replace(path, reserved)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(path, reserved)
            os.unlink(path)
    except BaseException:
        with suppress(OSError):
            if not reserved.stat().st_size:  # else it is the picture
                reserved.unlink()
        raise
    with suppress(OSError):
        flush_folder(place)
    return reserved


def _reserve(place: Path, path: Path) -> Path:
    """An empty file under a name that nobody has."""
    for number in count(1):
        name = path.name if number == 1 else f"{path.stem}-{number}{path.suffix}"
        try:
            os.close(os.open(place / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            if number == MOST_NAMES:
                raise
            continue
        return place / name
    raise AssertionError  # numbers do not end


def _copy(path: Path, reserved: Path) -> None:
    partial = reserved.with_name(f".{reserved.name}.part")
    try:
        with open_plain(path, "rb") as source, open_plain(partial, "wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fsync(target.fileno())
        shutil.copystat(path, partial)
        os.replace(partial, reserved)
        flush_folder(reserved.parent)
    finally:
        partial.unlink(missing_ok=True)
