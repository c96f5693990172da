"""Runtimes and converters that print from inside: what they say is kept from the user's screen.

Redirecting `sys.stdout` does not reach them, so the file descriptors themselves are turned away.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing is printed inside; what fails comes as an exception."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    kept = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with open(os.devnull, "w") as hole:
            for number in (1, 2):
                os.dup2(nowhere, number)
            with contextlib.redirect_stdout(hole), contextlib.redirect_stderr(hole):
                yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(nowhere)
