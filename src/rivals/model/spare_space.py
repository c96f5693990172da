"""A spare file in the folder of a model: space that is given back when the disk is full.

Dropping a task makes a model smaller, but the new description is written before the old files go.
The spare file is as large as that takes, so dropping works where nothing else can be written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from rivals.errors import RivalsError

NAME = ".spare"
BLOCK = 4096  # bytes; files take whole blocks
FULL = (errno.ENOSPC, errno.EDQUOT)


def keep(folder: Path, *sizes: int) -> None:
    """Hold space for files of these sizes, or as much of it as there is."""
    size = BLOCK * sum(2 + each // BLOCK for each in sizes if each)
    if size <= held(folder) <= 2 * size:
        return
    give_back(folder)
    for share in (4, 3, 2, 1):
        try:
            with (folder / NAME).open("xb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size * share // 4)
                else:
                    file.write(bytes(size * share // 4))
            return
        except OSError:
            give_back(folder)


def held(folder: Path) -> int:
    """The bytes that are held; a sparse file or a link holds none."""
    with contextlib.suppress(OSError):
        found = (folder / NAME).lstat()
        if stat.S_ISREG(found.st_mode):
            return min(found.st_size, getattr(found, "st_blocks", found.st_size) * 512)
    return 0


def give_back(folder: Path) -> bool:
    """Free the space; whether there was any."""
    try:
        (folder / NAME).unlink()
    except OSError:
        return False
    return True


def is_full(error: RivalsError) -> bool:
    """Whether a file could not be written because the disk is full."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL
