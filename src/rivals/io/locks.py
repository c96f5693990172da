"""One writer at a time in a folder, and a sign of life for a child process.

Both are locks of the operating system: it releases them when the process ends, also when the
process is killed. Nothing has to be cleaned up by hand.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from rivals.errors import RivalsError
from rivals.io.reading import check_no_links

LOCK_NAME = ".lock"  # the lock file in a folder; a killed process leaves it behind, unlocked


class BusyError(RivalsError):
    """Another process is writing to a folder."""


class FolderLock:
    """Holds `folder` for writing until `release`, or until the process ends.

    Raises BusyError if another process holds it, RivalsError if the folder is not writable or its
    lock file is a link, and OSError if it does not exist.
    The lock file is removed on release, so a folder holds it only while somebody writes.
    """

    def __init__(self, folder: Path) -> None:
        folder.stat()  # filelock would make a folder that is missing
        self._folder, self._path, self._process = folder, folder / LOCK_NAME, os.getpid()
        check_no_links(folder, self._path, "lock")
        # thread_local=False: a server may release the lock in another thread than it took it in.
        self._lock = FileLock(self._path, timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise BusyError(
                f"Another process is at work in {folder}; wait for it, or stop it."
            ) from error
        except PermissionError as error:
            raise RivalsError(
                f"Could not write to {folder} ({error.strerror}); choose another folder."
            ) from error
        self._identity = self._found()  # held open, so no other file gets its number
        if isinstance(self._lock, SoftFileLock):  # what filelock does where there are no locks
            self.release()
            raise OSError(errno.ENOTSUP, "the file system has no locks", str(folder))

    def check_place(self) -> None:
        """Refuse to go on if the folder was moved, removed or exchanged while the lock was held.

        Call it before writing: what is written then goes to the folder that was locked.
        """
        if self._found() != self._identity:
            raise RivalsError(
                f"The folder {self._folder} was moved, removed or exchanged meanwhile, so nothing "
                "was written there; bring it back and start again."
            )

    def _found(self) -> tuple[int, int] | None:
        """The identity of the lock file that is there now."""
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def release(self) -> None:
        # A forked child has a copy of this object, but the lock stays with the parent.
        if not self._lock.is_locked or os.getpid() != self._process:
            return
        if os.name == "nt":  # an open file cannot be removed, and one that others use stays
            self._lock.release()
            self._remove()
        else:  # removed before it is released: whoever opened it meanwhile sees that it is gone
            self._remove()
            self._lock.release()

    def _remove(self) -> None:
        if self._found() != self._identity:
            return  # the folder is another one by now, and so is the lock in it
        with contextlib.suppress(OSError):
            self._path.unlink()

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.release()


@contextlib.contextmanager
def lock_for_child(path: Path) -> Iterator[list[int]]:
    """File descriptors to start a child process with: it holds a lock on `path` until it ends.

    Pass them as `pass_fds` of `subprocess.Popen`. Windows cannot do this; there the list is empty.
    """
    if os.name == "nt":
        yield []
        return
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield [descriptor]
    finally:
        os.close(descriptor)


def child_is_alive(path: Path) -> bool:
    """Whether a process that was started with `lock_for_child(path)` still runs.

    Always False on Windows.
    """
    if os.name == "nt":
        return False
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # also if it is a link: a lock of somebody else says nothing about the child
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
