"""How long a run will take, judged by those that have been timed. The longest start first.

Runs of a kind that was timed take as long as those did. Else the time is the product of a factor
of the benchmark and one of the method, fitted to what was timed. What nothing is known of starts
first: it may be the longest, and it teaches what the others of its kind will take.
"""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import mean

from rivals.experiment.grid.grid_file import Planned

ROUNDS = 5  # of the fit; two factors settle quickly


class Expected:
    """Learns from every run that ends."""

    def __init__(self) -> None:
        self.timed: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self.of_benchmark: dict[str, float] = {}  # logarithms of seconds
        self.of_method: dict[str, float] = {}

    def learn(self, run: Planned, seconds: float) -> None:
        self.timed[run.kind].append(max(seconds, 1e-3))
        self._fit()

    def seconds(self, run: Planned) -> float:
        """The expected seconds of a run; infinite if nothing is known."""
        if run.kind in self.timed:
            return mean(self.timed[run.kind])
        if run.benchmark in self.of_benchmark and run.method in self.of_method:
            return math.exp(self.of_benchmark[run.benchmark] + self.of_method[run.method])
        return math.inf

    def _fit(self) -> None:
        """log seconds ≈ benchmark + method, each in turn the mean of what the other leaves."""
        known = [(kind[0], kind[1], math.log(mean(s))) for kind, s in self.timed.items()]
        benchmarks: dict[str, float] = defaultdict(float)
        methods: dict[str, float] = defaultdict(float)
        for _ in range(ROUNDS):
            for name in {benchmark for benchmark, _, _ in known}:
                benchmarks[name] = mean(log - methods[m] for b, m, log in known if b == name)
            for name in {method for _, method, _ in known}:
                methods[name] = mean(log - benchmarks[b] for b, m, log in known if m == name)
        self.of_benchmark, self.of_method = dict(benchmarks), dict(methods)


def longest_first(runs: list[Planned], expected: Expected) -> list[Planned]:
    """The order in which runs start: the unknown one of each kind, then by expected seconds."""
    seen: set[tuple[str, ...]] = set()
    scouts: list[Planned] = []
    rest: list[Planned] = []
    for run in runs:
        unknown = math.isinf(expected.seconds(run))
        (scouts if unknown and run.kind not in seen else rest).append(run)
        seen.add(run.kind)
    return scouts + sorted(rest, key=lambda run: -expected.seconds(run))
