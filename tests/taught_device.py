"""Lessons for a device that learns by itself, as its example program reads them; its answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from rivals.deploy.teachable.spoken_device import Line
from rivals.deploy.teachable.taught_state import TaughtState
from rivals.streams.digits import load

SIDE = 48


@cache
def pictures(label: int, count: int, first: int = 0) -> torch.Tensor:
    """Bundled digits as pictures of (3, 48, 48) bytes."""
    images, labels, _ = load()
    some = images[labels == label][first : first + count].float() * (255 / 16)
    large = F.interpolate(some, (SIDE, SIDE), mode="bilinear").round().to(torch.uint8)
    return large.expand(-1, 3, -1, -1).contiguous()


def lessons(task: str, labels: Sequence[int], count: int) -> list[Line]:
    """Pictures of all classes in turns."""
    return [
        Line(("learn", task, f"digit {label}"), pictures(label, count)[number])
        for number in range(count)
        for label in labels
    ]


def questions(labels: Sequence[int], count: int, task: str | None = None) -> list[Line]:
    words = ("predict",) if task is None else ("predict", task)
    return [Line(words, each) for label in labels for each in pictures(label, count, 100)]


class PythonDevice:
    """The same device in Python: the arithmetic of `features`, the state of taught_state.py."""

    def __init__(self, features: Any, state: TaughtState) -> None:
        self.features, self.state = features, state

    def say(self, lines: Sequence[Line]) -> list[str]:
        seen = [line.picture for line in lines if line.picture is not None]
        rows = iter(self.features(torch.stack(seen)).numpy() if seen else ())
        return [self._answer(line, rows) for line in lines]

    def _answer(self, line: Line, rows: Any) -> str:
        verb, *names = line.words
        if verb == "learn":
            self.state.learn(next(rows), *names)
        elif verb == "forget":
            self.state.forget(*names)
        elif verb == "predict":
            found, margin = self.state.answer(next(rows), *names)
            return f"{found.task}\t{found.name}\t{margin}"
        return "ok"


def ids(folder: Path, kind: str = "int8") -> int:
    """The checksum by which a saved state knows its network."""
    text = (folder / f"network_{kind}.c").read_text()
    return int(text.rpartition("network_id = 0x")[2][:8], 16)


def accuracy(features: Any, labels: Sequence[int], learned: int, tested: int) -> float:
    """Percent right of new digits."""
    state = TaughtState(len(features.body.centre))
    for label in labels:
        for row in features(pictures(label, learned)).numpy():
            state.learn(row, "digits", str(label))
    right = [
        state.answer(row)[0].name == str(label)
        for label in labels
        for row in features(pictures(label, tested, 100)).numpy()
    ]
    return 100 * float(np.mean(right))
