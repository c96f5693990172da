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
_lock = threading.Lock()
_inside = 0  # threads in the block
_before = (-1, -1)  # the limits before the first of them


@contextlib.contextmanager
def limited_memory(bytes_: int) -> Iterator[None]:
    """Let this process take at most `bytes_` more than it has now."""
    _enter(bytes_)
    try:
        yield
    finally:
        _leave()


if sys.platform == "linux":
    import resource

    def _enter(bytes_: int) -> None:
        global _inside, _before
        with _lock:
            if not _inside:
                _before = resource.getrlimit(resource.RLIMIT_DATA)
            _inside += 1
            try:
                with open(STATM, "rb") as file:
                    used = int(file.read().split()[5]) * resource.getpagesize()
            except (OSError, LookupError, ValueError):
                return
            _set_soft(used + bytes_)

    def _leave() -> None:
        global _inside
        with _lock:
            _inside -= 1
            if not _inside:
                resource.setrlimit(resource.RLIMIT_DATA, _before)

    def _set_soft(limit: int) -> None:
        for other in _before:
            limit = limit if other == resource.RLIM_INFINITY else min(limit, other)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (limit, _before[1]))

else:

    def _enter(bytes_: int) -> None:
        pass

    def _leave() -> None:
        pass
