"""The benchmark of devices that learn: its table is that of its results, and others can run it."""

from __future__ import annotations

import csv
import os
import runpy
import sys
from pathlib import Path

import pytest

from rivals.streams.data.catalogue import dataset
from rivals.streams.data.find import search
from test_docs import ROOT, blocks, named

SCRIPT = ROOT / "benchmarks" / "tiny_continual.py"
RESULTS = ROOT / "results" / "tiny-continual" / "tiny-continual.csv"


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_table_of_the_page_is_that_of_the_results() -> None:
    script, rows = runpy.run_path(str(SCRIPT)), read(RESULTS)
    assert len(rows) == 3 * 4 * sum(len(tasks) + 1 for _, tasks in script["STREAMS"].values())
    assert "\n".join(script["table"](rows)) in named("tiny-continual").read_text()


def test_whole_numbers_cost_less_than_wanted() -> None:
    """1.5 points, after every task of every stream, means of the draws."""
    apart: dict[tuple[str, str], float] = {}
    for row in read(RESULTS):
        sign = {"c-float": 1, "c-int8": -1}.get(row["system"], 0)
        for kind in ("known", "unknown"):
            place = (row["stream"] + row["after"], kind)
            apart[place] = apart.get(place, 0.0) + sign * float(row[kind]) / 3
    assert max(apart.values()) <= 1.5


@pytest.mark.data
def test_a_system_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class of the page, by its command."""
    if not os.environ.get("RIVALS_DATA") or not search(dataset("fashion-mnist")):
        pytest.skip("$RIVALS_DATA has no Fashion-MNIST; see `rivals data`.")
    monkeypatch.chdir(tmp_path)
    ((_, source),) = blocks(named("tiny-continual"), "python")
    Path("own.py").write_text(source)
    words = ["--out", "mine", "--systems", "own:System", "--only", "clothes", "--draws", "1"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    rows = read(Path("mine/tiny-continual.csv"))
    assert [row["known"] for row in rows] == ["50.00"] * 6
    assert [row["unknown"] for row in rows[:5]] == ["50.00", "25.00", "16.67", "12.50", "10.00"]
    monkeypatch.delitem(sys.modules, "own")
