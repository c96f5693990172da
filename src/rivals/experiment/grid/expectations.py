"""What a run of a grid is expected to reach, and whether it did.

expect:
  task_known: [92, 95]            # percent; [80, null] has no upper end
  bti: [null, 2]
  task_known over finetune: 10    # points above that method's mean on the same benchmark
  task_known over il2m/plain: 0   # the same, of the group that is named so
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from rivals.errors import RivalsError, unknown
from rivals.experiment.result_file import read_results
from rivals.io.reading import read_json

if TYPE_CHECKING:
    from rivals.experiment.grid.grid_file import PlannedRun

MEASURES = ("task_known", "task_inferred", "bti")


@dataclass(frozen=True)
class Band:
    """A measure and the ends between which it is expected, both included."""

    measure: str
    low: float | None = None
    high: float | None = None
    over: str = ""  # then the measure is a difference to this method

    def holds(self, value: float) -> bool:
        low = self.low is None or value >= self.low
        return low and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        what = f" over {self.over}" if self.over else ""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}{what}"
        end = f"≥ {self.low:g}" if self.low is not None else f"≤ {self.high:g}"
        return end + what


@dataclass(frozen=True)
class Verdict:
    """What one finished run reached of what was expected of it."""

    run: PlannedRun
    band: Band
    value: float
    subset: str
    revision: str

    @property
    def holds(self) -> bool:
        return self.band.holds(self.value)


def parse(expect: Any) -> tuple[Band, ...]:
    """The bands that a group of a grid names."""
    if not isinstance(expect, dict):
        raise RivalsError("expect must name measures, such as {task_known: [92, 95]}.")
    return tuple(_band(str(name), ends) for name, ends in expect.items())


def _band(name: str, ends: Any) -> Band:
    measure, _, over = name.partition(" over ")
    if measure not in MEASURES:
        raise unknown("measure to expect", measure, MEASURES)
    pair = ends if isinstance(ends, list) else [ends, None]
    numbers = [end for end in pair if end is not None]
    if len(pair) != 2 or not numbers or not all(_is_number(end) for end in numbers):
        raise RivalsError(f"expect: {name} is {ends}, but must be two numbers, [low, high].")
    low, high = (None if end is None else float(end) for end in pair)
    return Band(measure, low, high, over)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def verdicts(runs: Sequence[PlannedRun], out: Path) -> list[Verdict]:
    """For every finished run that something is expected of, in the order of the grid."""
    found = {run: _results(out / run.folder) for run in runs}
    measured = {run: results for run, results in found.items() if results}
    return [
        verdict
        for run, results in measured.items()
        for band in run.expect
        if (verdict := _verdict(run, band, results, measured, out))
    ]


def _verdict(
    run: PlannedRun,
    band: Band,
    results: dict[str, Any],
    all_: dict[PlannedRun, dict[str, Any]],
    out: Path,
) -> Verdict | None:
    value = _value(results, band.measure)
    if band.over:
        others = [
            _value(other, band.measure)
            for planned, other in all_.items()
            if planned.benchmark == run.benchmark and _name(planned) == band.over
        ]
        if not others:
            return None  # the other one is not finished
        value -= mean(others)
    made = read_json(out / run.folder / "measured.json", "measurements").get("revision", "")
    return Verdict(run, band, round(value, 2), results["subset"], str(made))


def _name(run: PlannedRun) -> str:
    return f"{run.method}/{run.name}" if run.name else run.method


def _value(results: dict[str, Any], measure: str) -> float:
    summary = results["summary"]
    return float(summary["bti"] if measure == "bti" else summary["accuracy"][measure])


def _results(folder: Path) -> dict[str, Any] | None:
    try:
        results = read_results(folder / "results.json")
    except RivalsError:
        return None
    return results if results["complete"] else None


def as_rows(found: Sequence[Verdict]) -> list[dict[str, str]]:
    """As a table for a file: what, how much, whether, and how to make it again."""
    return [
        {
            "benchmark": each.run.benchmark,
            "method": each.run.method,
            "seed": str(each.run.seed),
            "measure": each.band.measure,
            "value": f"{each.value:g}",
            "expected": str(each.band),
            "holds": "yes" if each.holds else "NO",
            "data": each.subset or "complete",
            "commit": each.revision,
            "command": re.sub(r" --out .*", "", each.run.command(Path("runs"))),
        }
        for each in found
    ]
