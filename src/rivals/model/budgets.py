"""Budgets that are kept: minutes of the clock and megabytes of this process."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from rivals.errors import RivalsError
from rivals.io.pictures import MAX_MEMORY
from rivals.io.process_memory import available_memory, peak_memory

RESERVE = 0.1  # of the minutes, for measuring and writing
PART_OF_FREE = 0.4  # of the free memory that pictures may take where no budget is given
NAMED = 400  # bytes to remember of each picture: its name, its class, its digest
COPIES = 2  # pictures are in memory twice while they are divided
ENGINE = (
    75_000_000  # bytes that torch takes when it trains, beside pictures and values: 40 to 65 MB
)
VALUES = 700  # bytes for a pixel of each picture of a batch, in the widest of our networks
MEASURED = 250 * 64  # the same for the pictures that are measured at once
WIDER = 2.8  # times as many bytes for a batch in the networks of the ancestors
BATCHES = (32, 16, 8, 4)
FEWEST = 40  # pictures that a budget must leave room for


@dataclass(frozen=True)
class MemoryPlan:
    """What fits: so many pictures, trained in batches of so many, each decoded in so much."""

    pictures: int
    batch: int
    decoding: int = MAX_MEMORY  # bytes that decoding one picture may take


class TimeBudget:
    """Time since learning began, and how much of the budget is left."""

    def __init__(self, minutes: float | None, started: float) -> None:
        if minutes is not None and not 0 < minutes < float("inf"):
            raise RivalsError(f"--minutes is {minutes}, but must be a positive number.")
        self.started = started
        self.limit = None if minutes is None else 60 * minutes

    def spent(self) -> float:
        return time.monotonic() - self.started

    def check(self, what: str) -> None:
        """Refuse a budget that is used up before anything could be learned."""
        if self.left() <= 0 and self.limit is not None:
            raise RivalsError(
                f"--minutes is {self.limit / 60:g}, and {what} took {self.spent():.0f} s, so there "
                "is no time left to learn; allow more. The model is as it was."
            )

    def check_steps(self, each: float, fewest: int) -> None:
        """The same of one that leaves time for hardly any steps."""
        needed = (self.spent() + fewest * each) / (1 - RESERVE) / 60
        if self.limit is not None:
            raise RivalsError(
                f"--minutes is {self.limit / 60:g}, but learning anything takes at least "
                f"{needed:.2g} here; allow more. The model is as it was."
            )

    def left(self) -> float:
        """Seconds that training may still take; endless without a budget."""
        if self.limit is None:
            return float("inf")
        return self.limit * (1 - RESERVE) - self.spent()


def room(
    shape: tuple[int, int, int], count: int, megabytes: float | None, ancestor: bool = False
) -> MemoryPlan:
    """What fits into a budget, or into a part of the memory that is free, of `count` pictures.

    Smaller batches make room for more pictures.
    """
    channels, height, width = shape
    wider = WIDER if ancestor else 1.0
    size = COPIES * channels * height * width + NAMED
    if megabytes is None:
        return MemoryPlan(
            min(count, max(FEWEST, int(available_memory() * PART_OF_FREE) // size)), BATCHES[0]
        )
    if not 0 < megabytes < float("inf"):
        raise RivalsError(f"--ram is {megabytes}, but must be a positive number of MB.")
    had, fit = peak_memory() + ENGINE, 0
    for batch in BATCHES:
        work = int(height * width * max(VALUES * batch * wider, MEASURED))
        fit = int(megabytes * 1e6 - had - work) // size
        if fit >= count or (batch == BATCHES[-1] and fit >= FEWEST):
            pictures = min(count, fit)
            # While pictures are read, each is in memory once.
            free = megabytes * 1e6 - peak_memory() - pictures * (size / COPIES + NAMED)
            return MemoryPlan(pictures, batch, min(MAX_MEMORY, int(free)))
    least = megabytes + (FEWEST - fit) * size / 1e6
    raise RivalsError(
        f"--ram is {megabytes:g} MB, but learning takes at least {math.ceil(least)} MB here; "
        "allow more, or start a model with a smaller --size."
    )
