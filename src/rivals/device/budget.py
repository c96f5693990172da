"""Budgets that are kept: minutes of the clock and megabytes of this process."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from rivals.errors import RivalsError

RESERVE = 0.1  # of the minutes, for measuring and writing
PART_OF_FREE = 0.4  # of the free memory that pictures may take where no budget is given
BOTH = 2  # pictures are in memory twice while they are divided
WORK = 120_000_000  # bytes that training takes beside pictures, at most
FEWEST = 100  # pictures that a budget must leave room for


class Clock:
    """Time since learning began, and how much of the budget is left."""

    def __init__(self, minutes: float | None, started: float) -> None:
        if minutes is not None and not 0 < minutes < float("inf"):
            raise RivalsError(f"--minutes is {minutes}, but must be a positive number.")
        self.started = started
        self.limit = None if minutes is None else 60 * minutes

    def spent(self) -> float:
        return time.monotonic() - self.started

    def left(self) -> float:
        """Seconds that training may still take; endless without a budget."""
        if self.limit is None:
            return float("inf")
        return self.limit * (1 - RESERVE) - self.spent()


def peak_memory() -> int:
    """The most that this process ever had in memory, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def most_pictures(shape: tuple[int, int, int], megabytes: float | None) -> int:
    """How many pictures of `shape` fit into a budget, or into a part of the memory that is free."""
    channels, height, width = shape
    size = BOTH * channels * height * width
    if megabytes is None:
        return max(FEWEST, int(free_memory() * PART_OF_FREE) // size)
    room = megabytes * 1e6 - peak_memory() - WORK
    if not room >= FEWEST * size:
        least = (peak_memory() + WORK + FEWEST * size) / 1e6
        raise RivalsError(
            f"--ram is {megabytes:g} MB, but learning takes at least {least:.0f} MB here; "
            "allow more, or use a machine with less installed."
        )
    return int(room) // size


def free_memory() -> int:
    """Bytes that can be had without pushing others out."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError):
        return 2**31
