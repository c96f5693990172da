"""A limit on the memory that a block of code may take, for files whose content decides that.

Linux keeps it: an allocation beyond it fails, and native code raises an error. Other systems do not
know such a limit, and the block runs without one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

STATM = "/proc/self/statm"  # in pages; the sixth number is data and stack


@contextlib.contextmanager
def limited_memory(bytes_: int) -> Iterator[None]:
    """Let this process take at most `bytes_` more than it has now."""
    if sys.platform != "linux":
        yield
        return
    _limit.enter(bytes_)
    try:
        yield
    finally:
        _limit.leave()


class _DataLimit:
    """The limit of this process, which all threads in such a block share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0  # threads in a block
        self.before = (-1, -1)  # the limits before the first of them

    def enter(self, more: int) -> None:
        import resource  # not on Windows

        with self.lock:
            if not self.inside:
                self.before = resource.getrlimit(resource.RLIMIT_DATA)
            self.inside += 1
            try:
                with open(STATM, "rb") as file:
                    used = int(file.read().split()[5]) * resource.getpagesize()
            except (OSError, LookupError, ValueError):
                return
            old = [limit for limit in self.before if limit != resource.RLIM_INFINITY]
            with contextlib.suppress(OSError, ValueError):
                limits = min([used + more, *old]), self.before[1]
                resource.setrlimit(resource.RLIMIT_DATA, limits)

    def leave(self) -> None:
        import resource

        with self.lock:
            self.inside -= 1
            if not self.inside:
                resource.setrlimit(resource.RLIMIT_DATA, self.before)


_limit = _DataLimit()
