"""A stream to choose settings with: its test examples are out of reach."""

from __future__ import annotations

import dataclasses
from typing import Any

from rivals.streams.stream import Stream, StreamItem


class OnValidation:
    """A stream as it is, but the validation examples of every task stand in for its test.

    A rule that keeps validation images (infer=judge) has seen some of them: benchmarks/judge.py.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def lesson(self, index: int) -> StreamItem:
        lesson = self.stream.lesson(index)
        return dataclasses.replace(lesson, test=lesson.task.validation)
