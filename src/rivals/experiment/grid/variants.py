"""The runs of a grid by variant: mean over seeds, and the difference to the first variant.

A seed fixes the order of classes, the split and the batches, so one seed is hard for all variants
alike. Differences are therefore taken seed by seed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from rivals.experiment.grid.comparison import Outcome
from rivals.experiment.report.groups import Spread
from rivals.experiment.report.labels import PRETRAINED


@dataclass(frozen=True)
class Variant:
    """The finished runs of one kind: the same benchmark, method and settings, one run a seed."""

    benchmark: str
    on: str  # test or validation images
    label: str
    seeds: tuple[int, ...]
    accuracy: Spread  # percent, task known
    difference: Spread | None  # points, to the first variant of the benchmark, on common seeds
    kilobytes: float | None  # needed to continue training
    seconds: float | None  # of training
    ancestor: str = ""  # the trained network that it starts from; empty: random weights

    def row(self) -> dict[str, str]:
        """As a line of a table."""
        return {
            "benchmark": self.benchmark,
            "on": self.on,
            "variant": self.label,
            "ancestor": self.ancestor,
            "seeds": ",".join(map(str, self.seeds)),
            "accuracy": _words(self.accuracy),
            "difference": "" if self.difference is None else _words(self.difference, "+"),
            "kilobytes": "" if self.kilobytes is None else f"{self.kilobytes:,.0f}",
            "seconds": "" if self.seconds is None else f"{self.seconds:,.0f}",
        }


def variants(outcomes: Sequence[Outcome]) -> list[Variant]:
    """All kinds of runs of which at least one is finished, in the order of the grid."""
    kinds: dict[tuple[str, ...], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.accuracy is not None:
            kinds[outcome.run.kind].append(outcome)
    first: dict[tuple[str, str], dict[int, float]] = {}  # of a benchmark: accuracy by seed
    several_presets = len({outcome.run.preset for outcome in outcomes}) > 1
    found = []
    for runs in kinds.values():
        by_seed = {each.run.seed: each.accuracy for each in runs if each.accuracy is not None}
        accuracy = Spread.of(list(by_seed.values()))
        if accuracy is None:
            continue
        run = runs[0].run
        base = first.setdefault((run.benchmark, run.on), by_seed)
        apart = [value - base[seed] for seed, value in by_seed.items() if seed in base]
        difference = None if base is by_seed else Spread.of(apart)
        found.append(
            Variant(
                run.benchmark, run.on, _label(runs[0], several_presets), tuple(sorted(by_seed)),
                accuracy, difference, _mean([each.kilobytes for each in runs]),
                _mean([each.seconds for each in runs]), runs[0].ancestor,
            )
        )  # fmt: skip
    return found


def _label(outcome: Outcome, with_preset: bool) -> str:
    run, mark = outcome.run, PRETRAINED if outcome.ancestor else ""
    return " ".join(filter(None, [run.method, run.preset if with_preset else "", run.name, mark]))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _words(spread: Spread, sign: str = "") -> str:
    text = f"{spread.mean:{sign}.1f}"
    return text if spread.deviation is None else f"{text} ± {spread.deviation:.1f}"
