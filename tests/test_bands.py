"""What a grid expects of its runs, and the stream that needs no data."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from rivals.cli.main import main
from rivals.errors import RivalsError
from rivals.experiment.grid.expectations import Band, parse, verdicts
from rivals.experiment.grid.grid_file import from_file
from rivals.experiment.measurements import revision
from rivals.seeds import Seed
from rivals.streams.gaussians import Gaussians, GaussianSettings

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("low", "high", "inside", "outside", "words"),
    [
        (92, 95, [92, 93.5, 95], [91.9, 95.1], "92 to 95"),
        (80, None, [80, 100], [79.9], "≥ 80"),
        (None, 2, [-5, 2], [2.1], "≤ 2"),
        (0, 0, [0], [0.1, -0.1], "0 to 0"),
    ],
)
def test_both_ends_belong_to_a_band(low, high, inside, outside, words):
    band = Band("task_known", low, high)
    assert all(band.holds(value) for value in inside)
    assert not any(band.holds(value) for value in outside)
    assert str(band) == words


def test_a_band_may_be_a_difference():
    assert parse({"task_known over finetune": 10}) == (Band("task_known", 10, None, "finetune"),)
    assert str(Band("task_known", 10, None, "finetune")) == "≥ 10 over finetune"


@pytest.mark.parametrize(
    ("expect", "sentence"),
    [
        ({"accuracy": [1, 2]}, "accuracy"),
        ({"bti": "little"}, r"bti is little, but must be two numbers"),
        ({"bti": [None, None]}, "two numbers"),
        ({"bti": [1, 2, 3]}, "two numbers"),
        ({"bti": True}, "two numbers"),
        ([92, 95], "expect must name measures"),
    ],
)
def test_what_cannot_be_expected_gets_a_sentence(expect, sentence):
    with pytest.raises(RivalsError, match=sentence):
        parse(expect)


def test_a_grid_says_what_it_expects_and_whether_it_came(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    def outside(*words: str) -> str:  # nobody is right more often than always
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main(list(words))
        assert exit_.value.code == 1
        return capsys.readouterr().out

    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "benchmarks: [gaussians]\nset: {epochs: 2, tasks: 2, train: 40}\ngroups:\n"
        "  - {methods: [finetune], expect: {task_known: [101, null]}}\n"
        "  - {methods: [twta], name: kept, expect: {bti: [0, 0], task_known over finetune: -100}}\n"
        "  - {methods: [finetune], seeds: [1], expect: {bti over twta/kept: -100}}\n"
    )
    table = tmp_path / "table.csv"
    words = ["compare", str(grid), "--out", str(tmp_path / "runs"), "--bands", str(table)]
    assert "outside" in outside(*words)
    rows = list(csv.DictReader(table.open()))
    assert [row["holds"] for row in rows] == ["NO", "yes", "yes", "yes"]
    assert rows[0]["expected"] == "≥ 101"
    assert rows[2]["expected"] == "≥ -100 over finetune"
    assert {row["commit"] for row in rows} == {revision()}
    assert "rivals run gaussians --method twta" in rows[1]["command"]
    assert "--out" not in rows[1]["command"]

    shown = json.loads(outside(*words, "--json"))
    assert shown["bands"] == rows
    measured = verdicts(from_file(grid), tmp_path / "runs")
    known = {each.run.method: each for each in measured if not each.band.over}
    results = json.loads((tmp_path / "runs/gaussians-finetune-default-0/results.json").read_text())
    assert known["finetune"].value == results["summary"]["accuracy"]["task_known"]


def test_the_ladder_is_a_grid_that_expects_something_of_every_run():
    runs = from_file(ROOT / "benchmarks" / "ladder.yaml")
    assert all(run.expect for run in runs if run.name != "without")
    assert {run.method for run in runs} >= {
        "twta", "gem", "icarl", "er", "il2m", "lamaml", "fsdgpm", "gpm", "softnet", "llt", "wsn",
        "sparcl",
    }  # fmt: skip


def test_clouds_are_made_by_their_seed_alone():
    settings = GaussianSettings(tasks=3, train=30, validation=5, test=6)
    first, again = (Gaussians(settings, Seed(4))[2] for _ in range(2))
    other = Gaussians(settings, Seed(5))[2]
    longer = Gaussians(GaussianSettings(tasks=9, train=30, validation=5, test=6), Seed(4))[2]
    for same in (again, longer):
        assert torch.equal(first.task.train.images, same.task.train.images)
        assert torch.equal(first.test.images, same.test.images)
    assert not torch.equal(first.task.train.images, other.task.train.images)
    assert first.task.train.images.shape == (120, 1, 8, 8)
    assert first.test.labels.bincount().tolist() == [6, 6, 6, 6]


def test_clouds_of_a_class_lie_together():
    train = Gaussians(GaussianSettings(), Seed(0))[0].task.train
    points = train.images.flatten(1).float()
    means = torch.stack([points[train.labels == label].mean(0) for label in range(4)])
    nearest = torch.cdist(points, means).argmin(1)
    assert (nearest == train.labels).float().mean() > 0.9
