"""The paper's printed figures, from paper.yaml: they stand in columns of their own."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

NEAR = 0.1  # two shares of weights are the same operating point if they differ by a tenth at most
HEADLINE = 3.125  # percent: what Table 1 says that TWTA retains


@cache
def _figures() -> dict[str, Any]:
    text = (resources.files("rivals.experiment.report") / "paper.yaml").read_text()
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def accuracy(benchmark: str, method: str, share: float) -> float | None:
    """What the paper prints for a method at its operating point.

    For TWTA that is Table 4 where it has the block size. Table 1 has one row, headed J = 32, whose
    numbers are those of J = 8 in Table 4: it is taken for both.
    """
    if method == "twta":
        units = round(100 / share) if share else 0
        if units not in (8, 32):
            return block_size(benchmark, units).get("accuracy")
        return block_size(benchmark, units).get("accuracy") or figure(
            "accuracy", benchmark, method, HEADLINE
        )
    return figure("accuracy", benchmark, method, share)


def figure(table: str, benchmark: str, method: str, share: float) -> float | None:
    """What a table prints for a method that retains `share` percent of its weights, if anything."""
    row = _row(table, method, share)
    columns = _figures()[table]["benchmarks"]
    if row is None or benchmark not in columns:
        return None
    value: float | None = row["values"][columns.index(benchmark)]
    return value


def millions(method: str, share: float) -> float | None:
    """The retained weights that Table 1 prints, in millions."""
    row = _row("accuracy", method, share)
    value: float | None = row["params"] if row else None
    return value


def block_size(benchmark: str, units: int) -> dict[str, float]:
    """Accuracy and seconds that Table 4 prints for a block size; empty if it prints none."""
    rows = _figures()["blocks"].get(benchmark, [])
    return next((row for row in rows if row["units"] == units), {})


def _row(table: str, method: str, share: float) -> dict[str, Any] | None:
    rows: list[dict[str, Any]] = _figures()[table]["rows"]
    for row in rows:
        if row["method"] != method:
            continue
        if row["share"] is None or abs(share - row["share"]) <= NEAR * row["share"]:
            return row
    return None
