"""What goes through `rivals watch`: frames from a source, and what is seen on them for the sinks.

source ─► Frame ─► Watcher ─► Sighting ─► sinks: lines, MQTT, webhook, class folders
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rivals.answer import Answer
from rivals.io.reading import printable

Stop = Callable[[], bool]  # whether the watch is to end
WAIT = 0.2  # seconds between two questions whether it is


@dataclass(frozen=True)
class FileStamp:
    """Changes with every change of a file."""

    size: int
    changed: int  # ns
    number: int  # of its inode


@dataclass(frozen=True)
class Frame:
    """One picture of a source."""

    name: str  # of its file, or of what it was filmed by
    picture: bytes | NDArray[np.uint8]  # of a file, or pixels (height, width, channels)
    number: int  # from 1 on
    path: Path | None = None
    stamp: FileStamp | None = None


@dataclass(frozen=True)
class Sighting:
    """What is seen on a frame, or why nothing is."""

    frame: Frame
    time: datetime
    answer: Answer | None = None
    error: str = ""
    changed: bool = False  # whether the last one was another class, another task, or rejected

    def to_dict(self) -> dict[str, Any]:
        time = self.time.astimezone(timezone.utc).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {"time": time, "image": self.frame.name, "frame": self.frame.number}
        if self.answer is None:
            return {**found, "error": self.error}
        label = None if self.answer.rejected else self.answer.label
        confidence = round(self.answer.confidence, 6)
        return {**found, "task": self.answer.task, "label": label, "confidence": confidence,
                "rejected": self.answer.rejected}  # fmt: skip


class Sink(Protocol):
    """Takes what is seen. It never waits for anybody, and what fails in it is one sentence."""

    def send(self, sighting: Sighting) -> None: ...

    def close(self) -> None: ...


class Notices:
    """Sentences for the person: one when something goes wrong, one when it is well again."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say, self._last = say or to_stderr, ""

    def trouble(self, sentence: str) -> None:
        """Said once, until `well`."""
        if not self._last:
            self._last = sentence
            self._say(sentence)

    def well(self, sentence: str) -> None:
        if self._last:
            self._last = ""
            self._say(sentence)


def to_stderr(sentence: str) -> None:
    print(f"rivals: {printable(sentence, 10_000)}", file=sys.stderr, flush=True)
