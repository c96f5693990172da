"""Differences to TWTA, seed by seed: what two systems share by chance falls out of them.

A seed fixes the order of classes, the split and the batches, so one seed is hard for all systems
alike. The interval is Student's over the seeds that both have; above 0, TWTA is ahead by more than
seeds explain.
"""

from __future__ import annotations

import math

from rivals.experiment.report.groups import Group, Section, Spread
from rivals.experiment.report.tables import SYSTEM, Cell, Column, Table, finished

LEVEL = 0.95


def paired(section: Section) -> Table:
    """TWTA minus each other system, where two seeds or more are common to both."""
    columns = [
        SYSTEM,
        Column("common seeds", "count"),
        Column("TWTA ahead by", "points", about="accuracy with the task known, mean ± deviation"),
        Column("at least", "points", about="the lower end of the 95 % interval"),
        Column("at most", "points", about="its upper end"),
    ]
    table = Table("paired", "Ahead or behind, seed by seed", columns)
    first = next((group for group in section.groups if group.method == "twta"), None)
    for other in section.groups:
        if first is None or other is first:
            continue
        apart = differences(first, other)
        found = Spread.of(apart)
        if found is None or found.deviation is None:
            continue
        reach = half_width(found)
        table.rows.append([
            Cell(text=other.label), Cell(float(found.count)), Cell(found.mean, found.deviation),
            Cell(found.mean - reach), Cell(found.mean + reach),
        ])  # fmt: skip
    return finished(table, section)


def differences(one: Group, other: Group) -> list[float]:
    """Points that `one` is ahead by, a seed that both have at a time."""
    theirs = {run["seed"]: run.summary["accuracy"]["task_known"] for run in other.runs}
    return [
        run.summary["accuracy"]["task_known"] - theirs[run["seed"]]
        for run in one.runs
        if run["seed"] in theirs
    ]


def half_width(found: Spread) -> float:
    """Of the interval that holds the mean difference with 95 %: t · s / √n."""
    from scipy.special import stdtrit  # slow to import, and one seed needs none

    assert found.deviation is not None
    t = float(stdtrit(found.count - 1, (1 + LEVEL) / 2))
    return t * found.deviation / math.sqrt(found.count)
