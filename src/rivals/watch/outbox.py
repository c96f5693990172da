"""What waits to be sent to somebody else: never long, in its order, and nobody waits for it.

A thread delivers. What cannot be delivered is tried again, with longer and longer pauses; when too
much waits, the oldest is forgotten.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import deque
from collections.abc import Callable

QUEUE = 100  # bodies that wait
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two attempts
LAST_SECONDS = 2.0  # for what still waits at the end

Body = bytes


class Outbox:
    """Bodies on their way to `deliver`, which raises an OSError if it cannot."""

    def __init__(
        self, name: str, deliver: Callable[[Body], None],
        trouble: Callable[[Exception], None] = lambda error: None,
        well: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.deliver, self.trouble, self.well = deliver, trouble, well
        self.waiting: deque[Body] = deque(maxlen=QUEUE)
        self.ending, self._woken = False, False
        self._there = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def put(self, body: Body) -> None:
        with self._there:
            self.waiting.append(body)
            self._there.notify()

    def wake(self) -> None:
        """Try again now."""
        with self._there:
            self._woken = True
            self._there.notify()

    def close(self) -> None:
        """Wait a little for what is there."""
        with self._there:
            self.ending = True
            self._there.notify()
        self._thread.join(LAST_SECONDS)

    def _work(self) -> None:
        while True:
            with self._there:
                self._there.wait_for(lambda: self.waiting or self.ending)
                if not self.waiting:
                    return
                body = self.waiting.popleft()
            if not self._delivered(body):
                return

    def _delivered(self, body: Body) -> bool:
        """Whether it was delivered, at last, before the end."""
        pause = FIRST_PAUSE
        while True:
            try:
                self.deliver(body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.trouble(error)
                if self.ending:
                    return False
                self._pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self.well()
                return True

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._there:
            self._there.wait_for(
                lambda: self.ending or self._woken or time.monotonic() >= end, seconds
            )
            self._woken = False
