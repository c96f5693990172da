"""Silence runtimes and converters that print from native code.

Redirecting `sys.stdout` does not affect native code, so the file descriptors are redirected too.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard everything that is printed in the block; exceptions pass through."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    kept = [os.dup(number) for number in (1, 2)]
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        with open(os.devnull, "w") as sink:
            for number in (1, 2):
                os.dup2(devnull, number)
            with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
                yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(devnull)
