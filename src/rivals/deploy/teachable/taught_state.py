"""What a device has learned, as Python sees it: the same sums, answers and saved bytes as teach.c.

A class is its names, a count and the sums of the whitened features of its pictures. A saved state:

    magic, version, network, sequence, classes │ task, name, count, sums of each │ CRC-32
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rivals.deploy.teachable.calibrated_body import UNIT
from rivals.errors import RivalsError

NAME, MOST, PAGE = 64, 65535, 256  # as in teach.h
MAGIC, FORMAT = 0x54564952, 1
Features = NDArray[np.int64]  # (d,), or (n, d) of several pictures


@dataclass
class TaughtClass:
    """A class that a device knows."""

    task: str
    name: str
    sums: Features
    count: int = 0

    @property
    def mean(self) -> Features:
        """Rounded, half away from zero."""
        size = (np.abs(self.sums) + self.count // 2) // self.count
        return np.asarray(np.sign(self.sums) * size)


@dataclass
class TaughtState:
    """Classes in the order in which they were first seen."""

    features: int
    classes: list[TaughtClass] = field(default_factory=list)

    def learn(self, features: Features, task: str, name: str) -> None:
        for each in (task, name):
            check_name(each)
        found = next((c for c in self.classes if (c.task, c.name) == (task, name)), None)
        if found is None:
            found = TaughtClass(task, name, np.zeros(self.features, np.int64))
            self.classes.append(found)
        found.sums = found.sums + features
        found.count += 1

    def forget(self, task: str, name: str | None = None) -> None:
        self.classes = [
            c for c in self.classes if c.task != task or (name is not None and c.name != name)
        ]

    def answer(self, features: Features, task: str | None = None) -> tuple[TaughtClass, int]:
        """The nearest class, and how much likelier than the next: 256 times the logarithm."""
        asked = self.asked(task)
        distances = self._distances(features[None], asked)[0].tolist()
        best = min(range(len(asked)), key=distances.__getitem__)  # the first of equals
        others = [*distances[:best], *distances[best + 1 :], 2**64 - 1]
        return asked[best], min((min(others) - distances[best]) // (2 * UNIT), 2**31 - 1)

    def names(self, rows: Features, task: str | None = None) -> list[str]:
        """The nearest class of each row of features, (n, d)."""
        asked = self.asked(task)
        return [asked[place].name for place in self._distances(rows, asked).argmin(1)]

    def asked(self, task: str | None) -> list[TaughtClass]:
        return [c for c in self.classes if task in (None, c.task)]

    @staticmethod
    def _distances(rows: Features, asked: list[TaughtClass]) -> Features:
        """Squared, (n, classes): whole numbers below 2⁵³, which are exact in float64."""
        x, means = (np.asarray(a, np.float64) for a in (rows, [c.mean for c in asked]))
        squares = (x * x).sum(1)[:, None] + (means * means).sum(1) - 2 * x @ means.T
        return np.asarray(squares, np.int64)

    def saved(self, network: int, sequence: int) -> bytes:
        """The bytes of a slot, in whole pages."""
        data = struct.pack("<5I", MAGIC, FORMAT, network, sequence, len(self.classes))
        for each in self.classes:
            names = each.task.encode().ljust(NAME, b"\0") + each.name.encode().ljust(NAME, b"\0")
            data += names + struct.pack("<I", each.count) + each.sums.astype("<i4").tobytes()
        data += struct.pack("<I", zlib.crc32(data))
        return data + bytes(-len(data) % PAGE)


def check_name(name: str) -> None:
    """Refuse what does not fit into the place of a name."""
    if not 0 < len(name.encode()) < NAME or "\0" in name:
        raise RivalsError(
            f"The name '{name}' has {len(name.encode())} bytes, but a device keeps 1 to "
            f"{NAME - 1}; give it a shorter one."
        )
