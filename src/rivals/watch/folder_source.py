"""A folder as a source: the pictures that are there, then new ones as they come.

The folder is looked at again and again, which works on every file system and over a network. A
picture counts once its size and time have stayed the same for a while: who writes it is done then.
One that changes later is new. Links, subfolders and hidden files are left alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.files import open_plain
from rivals.io.pictures import MAX_FILE
from rivals.watch.frame import WAIT, FileStamp, Frame, Notices, Stop, to_stderr

SETTLED = 0.5  # seconds in which a file that is done does not change
HALF = (".part", ".tmp", ".crdownload")  # names under which others write
IGNORED = {"thumbs.db", "desktop.ini"}
SHARE = 0.1  # of the time that a folder may be looked at


class FolderSource:
    """The pictures of a folder; `once` ends with the last one that is there."""

    def __init__(self, folder: Path, stop: Stop, once: bool = False) -> None:
        self.folder, self.stop, self.once = folder, stop, once
        self.notices, self.count = Notices(), 0
        self._seen: dict[str, FileStamp] = {}  # of files that are there
        self._young: dict[str, tuple[FileStamp, float]] = {}  # since when they are as they are
        if not folder.is_dir():
            raise RivalsError(f"There is no folder {folder}; name one that is there.")

    def __iter__(self) -> Iterator[Frame]:
        while not self.stop():
            began = time.monotonic()
            ready = self._look(began)
            spent = time.monotonic() - began
            for name in ready:
                if self.stop():
                    return
                frame = self._read(name)
                if frame is not None:
                    yield frame
            if self.once and not self._young and not ready:
                return
            if not ready:
                self._wait(max(WAIT, spent / SHARE))

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stop() and time.monotonic() < end:
            time.sleep(min(WAIT, seconds))

    def _look(self, now: float) -> list[str]:
        """The names of files that are new and done, the oldest first."""
        found: dict[str, FileStamp] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    hidden = entry.name.startswith(".") or entry.name.lower() in IGNORED
                    if hidden or entry.name.lower().endswith(HALF):
                        continue
                    status = _status(entry)
                    if status is not None and stat.S_ISREG(status.st_mode):
                        found[entry.name] = stamp_of(status)
        except OSError as error:
            self.notices.trouble(
                f"The folder {self.folder} cannot be read ({error.strerror}); it is waited for."
            )
            if self.once:
                raise RivalsError(f"The folder {self.folder} is gone; bring it back.") from error
            return []
        self.notices.well(f"The folder {self.folder} is there again.")
        self._seen = {name: stamp for name, stamp in self._seen.items() if name in found}
        young, ready = {}, []
        for name, stamp in found.items():
            if self._seen.get(name) == stamp:
                continue
            known, since = self._young.get(name, (stamp, now))
            since = since if known == stamp else now
            old = time.time() - stamp.changed / 1e9 > 2 * SETTLED  # it lay there before
            if old or now - since >= SETTLED:
                ready.append(name)
                self._seen[name] = stamp
            else:
                young[name] = (stamp, since)
        self._young = young
        return sorted(ready, key=lambda name: (found[name].changed, name))

    def _read(self, name: str) -> Frame | None:
        path = self.folder / name
        try:
            with open_plain(path, "rb") as file:
                stamp = stamp_of(os.fstat(file.fileno()))
                data = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return None  # somebody was faster
        except OSError as error:
            to_stderr(f"{path} cannot be read ({error.strerror}).")
            return None
        if stamp != self._seen.get(name):
            self._seen.pop(name, None)  # it has changed since
            return None
        if len(data) > MAX_FILE:
            to_stderr(f"{path} has more than {MAX_FILE:,} bytes, the limit of a picture.")
            return None
        self.count += 1
        return Frame(str(path), data, self.count, path, stamp)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def stamp_of(status: os.stat_result) -> FileStamp:
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ino)
