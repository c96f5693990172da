"""Connections with deadlines and limits, so that nobody keeps others out.

Anybody can open a connection, also without the token. So a client that sends half a request, or a
byte a second, is disconnected after a while. Where too many connections are open, the incomplete
request that is oldest is dropped for a new one. A complete request is in the queue, and is always
answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for the head of a request, from the first moment it is waited for
BODY_SECONDS = 10.0  # for its body, and one more for every MIN_RATE bytes of it
MIN_RATE = 16 * 2**10  # bytes a second
ANSWER_SECONDS = 60.0  # in which a client takes nothing of an answer
PER_ADDRESS = 256  # connections of one address
IN_ALL = 512  # most systems allow a process 1,024 open files
INTERVAL = 0.5  # seconds between two looks at a connection
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
    b"connection: close\r\nretry-after: 1\r\ncontent-length: 62\r\n\r\n"
    b'{"message": "Too many requests are in the queue; try again."}\n'
)


class WebConnection(H11Protocol):
    """A connection of uvicorn that knows what it waits for, and how long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._phase: str | None = "head"
        self._since, self._received = self.loop.time(), 0
        self._look = self.loop.call_later(INTERVAL, self._check)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._update()

    def phase(self) -> str | None:
        """What the client has to do next; None if it is the server's turn."""
        if self.flow.write_paused:
            return "answer"
        state = self.conn.their_state
        if state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            return "head"
        if state is h11.SEND_BODY:
            waits = self.flow.read_paused or self.cycle.waiting_for_100_continue
            return None if waits else "body"
        return None

    def seconds(self) -> float:
        """How long this phase may take."""
        if self._phase == "body":
            return BODY_SECONDS + self._received / MIN_RATE
        return ANSWER_SECONDS if self._phase == "answer" else HEAD_SECONDS

    def _update(self) -> None:
        phase = self.phase()
        if phase != self._phase:
            self._phase, self._since, self._received = phase, self.loop.time(), 0

    def _check(self) -> None:
        self._update()
        if self._phase is not None and self.loop.time() - self._since > self.seconds():
            self.transport.abort()
        else:
            self._look = self.loop.call_later(INTERVAL, self._check)

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client, if there are too many."""
        every = [each for each in self._others() if not each.transport.is_closing()]
        own = [each for each in every if each.address == self.address]
        crowd = own if len(own) >= PER_ADDRESS else every if len(every) >= IN_ALL else []
        waiting = [each for each in crowd if each.phase() is not None]
        if waiting:
            min(waiting, key=lambda each: each._since).transport.abort()
        elif crowd:
            self.transport.write(BUSY)
            self.transport.close()

    def _others(self) -> list[WebConnection]:
        connections: set[Any] = self.connections
        return [each for each in connections if each is not self]
