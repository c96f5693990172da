"""The loop of `rivals watch`: every frame is answered, and what is seen goes to all sinks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from rivals.answer import Answer
from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.model.model import Model
from rivals.naming.frame_filter import FrameFilter
from rivals.watch.frame import Frame, Sighting, Sink


class Watcher:
    """A model that answers frames, and learns from the last one when somebody says what it is."""

    def __init__(
        self, model: Model, sinks: Sequence[Sink] = (), task: str | None = None,
        reject: float | None = None, together: bool = True,
    ) -> None:  # fmt: skip
        model.check(task, reject)
        self.model, self.sinks, self.task, self.reject = model, list(sinks), task, reject
        self.together = together  # whether the last frames answer together, or each alone
        self.filter = FrameFilter(reject)
        self.last: Sighting | None = None  # with an answer
        self._lock = threading.RLock()  # who answers and who learns wait for each other

    def run(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            sighting = self.see(frame)
            for sink in self.sinks:
                sink.send(sighting)

    def see(self, frame: Frame) -> Sighting:
        now = datetime.now(timezone.utc)
        with self._lock:
            try:
                content = self.model.opened().description
                pixels = to_pixels(
                    frame.picture, content.input_shape, name=frame.name, sound=content.sound
                )
            except RivalsError as error:
                return Sighting(frame, now, error=str(error))
            if not self.together:
                self.filter = FrameFilter(self.reject)
            evidence = self.model.evidence(pixels[None], self.task, self.reject)[0]
            answer = self.filter(evidence)
            before = self.last.answer if self.last else None
            self.last = Sighting(frame, now, answer, changed=shown(before) != shown(answer))
            return self.last

    def label(self, label: str, task: str | None = None) -> dict[str, Any]:
        """Teach the last frame: it is of this class. Answers know it from the next frame on."""
        with self._lock:
            if self.last is None:
                raise RivalsError("No frame was answered yet, so there is nothing to learn.")
            frame, task = self.last.frame, task or self.task
            facts = self.model.add_picture(frame.picture, label, task)
            self.filter = FrameFilter(self.reject)
            return {"image": frame.name, "frame": frame.number, "task": facts.name,
                    "label": label, "images": facts.images}  # fmt: skip

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def shown(answer: Answer | None) -> tuple[str, str] | None:
    """What others are told of an answer; None: none of these."""
    return None if answer is None or answer.rejected else (answer.task, answer.label)
