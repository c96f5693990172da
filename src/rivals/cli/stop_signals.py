"""Ctrl-C and SIGTERM: finish the current step and save, or leave at once and clean up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Remembers a signal, so that the current step can finish; a second one stops at once."""

    def __init__(self) -> None:
        self._asked = False
        self._previous: dict[int, Any] = {}

    def asked(self) -> bool:
        return self._asked

    def _handle(self, number: int, frame: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True

    def __enter__(self) -> StopRequest:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_exception() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, so that unfinished files are removed on the way out."""

    def leave(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
