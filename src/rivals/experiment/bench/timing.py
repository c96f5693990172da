"""Times that can be compared on a busy machine: variants take turns, medians are compared.

Times are CPU seconds of this process, which has one thread: what other programs do meanwhile makes
a variant wait, and waiting is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Variant = Callable[[], object]
SHORTEST = 0.02  # seconds of a turn; what is quicker is called several times


@dataclass(frozen=True)
class Times:
    """Seconds of one call, turn by turn."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Ratio:
    """The median and the quartiles of the ratios of single turns, in which both were neighbours."""

    value: float
    spread: tuple[float, float]


def interleave(variants: Mapping[str, Variant], rounds: int) -> dict[str, Times]:
    """Every variant once in each round; two rounds to warm up come first."""
    turns = {name: _turns(variant) for name, variant in variants.items()}
    found: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            found[name].append(timed(variant, turns[name]))
    return {name: Times(seconds) for name, seconds in found.items()}


def _turns(variant: Variant) -> int:
    """How many calls make a turn that is long enough to time."""
    variant()
    return max(1, round(SHORTEST / max(1e-6, timed(variant))))


def timed(variant: Variant, calls: int = 1) -> float:
    """CPU seconds of one call, the mean of a few."""
    start = time.process_time()
    for _ in range(calls):
        variant()
    return (time.process_time() - start) / calls


def fastest(times: Mapping[str, Times], prefix: str) -> Times:
    """The quickest of the variants whose names begin with `prefix`, as for layouts of one thing."""
    return min((t for name, t in times.items() if name.startswith(prefix)), key=lambda t: t.median)


def ratio(ours: Times, theirs: Times) -> Ratio:
    """How many times as long as theirs ours takes."""
    turns = [a / b for a, b in zip(ours.seconds, theirs.seconds, strict=True)]
    return Ratio(statistics.median(turns), quartiles(turns))


def quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
