"""`rivals report`: the numbers are those of the runs, the paper's stand apart, the page works."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
import yaml

from rivals.cli.main import main
from rivals.errors import RivalsError
from rivals.experiment.grid_state import GridState
from rivals.experiment.report import paper_values as paper
from rivals.experiment.report.accuracy_plots import over_tasks
from rivals.experiment.report.cost_plots import front
from rivals.experiment.report.formats import markdown, words
from rivals.experiment.report.learning_plots import (
    every_task,
    mean_curve,
    smooth,
    within_a_task,
)
from rivals.experiment.report.paired import paired
from rivals.experiment.report.report_runs import RunFilter, read
from rivals.experiment.report.sections import sections
from rivals.experiment.report.tables import Cell, Column, accuracy, blocks, bti, cost, overview
from rivals.experiment.report.winner_plots import shared_winners, winner_map
from rivals.experiment.report.write import TABLES
from rivals.experiment.result_file import write_results

Accepted = Callable[..., str]
Refused = Callable[..., str]
Spawn = Callable[..., Any]
CHROMIUM = shutil.which("chromium")
TITLE = "A & B <compared>"
SUBSET = "CIFAR-100: 150 of 500 training images a class"


def a_run(
    folder: Path, benchmark: str = "cifar100", method: str = "twta", seed: int = 0, tasks: int = 4,
    preset: str = "small", subset: str = SUBSET, units: int | None = None, names: str = "split-{}",
    level: float = 60.0, nominal: float | None = None, ancestor: str = "",
) -> Path:  # fmt: skip
    """The files of a finished run with made-up numbers that depend on its seed."""
    if method == "twta" and units is None:
        units = 8
    loss = 0.0 if units else 5.0
    matrix = [
        [round(level + seed + j - loss * (i - j), 3) for j in range(i + 1)] for i in range(tasks)
    ]
    forgotten = loss * (tasks - 1) / 2 if tasks > 1 else 0.0
    entries = []
    for task in range(tasks):
        entry: dict[str, Any] = {
            "name": names.replace("{}", str(task)), "classes": ["a", "b"],
            "accuracy": matrix[task][-1],
            "validation_accuracy": 50.0, "flops": 1e9 * (1 + seed),
            "ticket": {"weights": 1000, "bytes": 4000 + 10 * seed, "macs": 5000},
        }  # fmt: skip
        if units:
            entry |= {"units": [units, units], "free": {"layer0": 1 - task / 10, "layer1": 0.9}}
            entry["winners"] = [[(task + b + seed) % units for b in range(6)], [0, task % 2]]
        entries.append(entry)
    accuracy_ = mean(matrix[-1])
    share = nominal if nominal is not None else 100 / units if units else 100.0
    results = {
        "format": 1, "benchmark": benchmark, "method": method, "preset": preset, "seed": seed,
        "subset": subset, "complete": True, "tasks": entries, "matrix": matrix,
        "inferred": [
            {"after": tasks, "accuracy": [30.0 + seed] * tasks, "task_accuracy": [40.0] * tasks}
        ],
        "summary": {
            "accuracy": {
                "task_known": accuracy_, "task_inferred": 30.0 + seed, "when_learned": level + 1,
            },
            "bti": forgotten, "bwt": -forgotten, "forgetting": forgotten,
            "overlap": 10.0 if units else None, "overlap_by_chance": 12.5 if units else None,
            "retained": {"nominal": share, "effective": share / 4, "weights": 1000.0},
            "flops": sum(entry["flops"] for entry in entries),
            "bytes": {"weights": 8000, "tasks": 500},
        },
    }  # fmt: skip
    if ancestor:
        results["ancestor"] = {"name": ancestor, "sha256": "0" * 64}
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results))
    measured = {
        "host": "Linux x86_64",
        "total_train_seconds": 10.0 + seed,
        "peak_memory_bytes": 3e8,
    }
    (folder / "measured.json").write_text(json.dumps(measured))
    config = {
        "format": 1, "benchmark": benchmark, "method": method, "preset": preset, "seed": seed,
        "stream": {"tasks": tasks}, "network": {"units": units or 8}, "training": {"epochs": 10},
    }  # fmt: skip
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two benchmarks, three methods, three seeds; TWTA with two block sizes on one of them."""
    root = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        for method, level in (("twta", 61.0), ("gpm", 58.0), ("finetune", 40.0)):
            a_run(root / f"c-{method}-{seed}", "cifar100", method, seed, level=level)
            a_run(root / f"d-{method}-{seed}", "digits", method, seed, subset="", level=level)
        a_run(root / f"c-j32-{seed}", "cifar100", "twta", seed, units=32, level=57.0)
    return root


@pytest.fixture(scope="session")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "deep" / "report"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(runs), "--out", str(out), "--title", TITLE, "--with-runs"])
    assert ended.value.code == 0
    return out


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# Systems that start from a trained network ----------------------------------------------------


def test_pretrained_systems_are_marked_and_do_not_compete_with_the_others(tmp_path: Path) -> None:
    a_run(tmp_path / "twta", level=60.0)
    a_run(tmp_path / "gpm", method="gpm", level=55.0)
    a_run(tmp_path / "slda", method="slda", level=70.0, ancestor="small")
    section = sections(read([tmp_path]))[0]
    assert [group.label for group in section.groups] == ["TWTA", "GPM", "SLDA (pretrained)"]
    for table in (accuracy(section), cost(section), bti(section), overview([section])):
        said = [note for note in table.notes if note.startswith("(pretrained): starts from")]
        assert len(said) == 1, table.name
        assert "(ancestor small)" in said[0]
        assert "bold is the best of those" in said[0]
        assert "SLDA (pretrained)" in markdown([("", table)])
    best = [row[0].text for row in accuracy(section).rows if row[2].best]
    assert best == ["TWTA"], "SLDA is ahead, and of another kind"


def test_among_pretrained_systems_the_best_is_bold(tmp_path: Path) -> None:
    a_run(tmp_path / "ncm", method="ncm", level=60.0, ancestor="tiny")
    a_run(tmp_path / "slda", method="slda", level=70.0, ancestor="small")
    table = accuracy(sections(read([tmp_path]))[0])
    assert [row[0].text for row in table.rows if row[2].best] == ["SLDA (pretrained)"]
    said = next(note for note in table.notes if note.startswith("(pretrained)"))
    assert "(ancestors small, tiny)" in said
    assert "random weights" not in said


# Numbers ------------------------------------------------------------------------------------------


def test_means_and_deviations_are_those_of_the_seeds(runs: Path, report: Path) -> None:
    row = next(
        row for row in table_of(report / "accuracy.csv")
        if (row["benchmark"], row["method"]) == ("cifar100", "GPM")
    )  # fmt: skip
    files = [json.loads((runs / f"c-gpm-{seed}" / "results.json").read_text()) for seed in range(3)]
    known = [each["summary"]["accuracy"]["task_known"] for each in files]
    assert float(row["task known %"]) == pytest.approx(mean(known))
    assert float(row["task known % deviation"]) == pytest.approx(stdev(known), rel=1e-5)
    assert float(row["task unknown %"]) == pytest.approx(31.0)
    assert (row["seeds"], row["paper %"], row["subset"]) == ("3", "62.4", SUBSET)
    costs = next(
        row for row in table_of(report / "cost.csv")
        if (row["benchmark"], row["method"]) == ("cifar100", "GPM")
    )  # fmt: skip
    assert float(costs["training FLOPs"]) == pytest.approx(mean([4e9, 8e9, 12e9]))
    assert float(costs["seconds"]) == pytest.approx(11.0)
    assert float(costs["ticket bytes"]) == pytest.approx(4010)
    assert float(costs["to continue bytes"]) == pytest.approx(8500)


def test_known_and_unknown_stand_side_by_side_and_subsets_say_so(report: Path) -> None:
    for name in ("accuracy", "paired", "cost", "bti", "blocks"):
        for ending in ("md", "csv", "tex"):
            assert SUBSET in (report / f"{name}.{ending}").read_text(), (name, ending)
    text = (report / "accuracy.md").read_text()
    assert "| task known % | task unknown % | paper % |" in text
    line = next(line for line in text.splitlines() if line.startswith("| GPM"))
    assert line.startswith("| GPM | 3 | ")
    assert "| 31.0 ± 1.0 | 62.40 |" in line
    page = (report / "report.html").read_text()
    assert page.count('<span class="badge">subset</span>') == 1
    assert SUBSET in page


def test_the_effect_of_block_size(runs: Path) -> None:
    (cifar, _) = sections(read([runs]))
    table = blocks(cifar)
    heads = [column.head for column in table.columns]
    values = [dict(zip(heads, row, strict=True)) for row in table.rows]
    assert [row["J"].value for row in values] == [8, 32]
    assert [row["method"].text for row in values] == ["TWTA", "TWTA J = 32"]
    assert [row["paper %"].value for row in values] == [66.53, 65.40]
    assert [row["paper seconds"].value for row in values] == [1039.73, 785.93]
    assert [row["kept, nominal %"].value for row in values] == [12.5, 3.125]


def test_differences_are_taken_seed_by_seed(tmp_path: Path) -> None:
    for seed, level in enumerate((59.0, 58.0, 57.0)):
        a_run(tmp_path / f"twta-{seed}", method="twta", seed=seed, level=60.0)
        a_run(tmp_path / f"other-{seed}", method="random-ticket", seed=seed, level=level, units=8)
    a_run(tmp_path / "alone", method="twta", seed=7, level=90.0)  # nobody to compare it with
    a_run(tmp_path / "once", method="gpm", seed=0)  # one seed says nothing of its spread
    (section,) = sections(read([tmp_path]))
    (row,) = paired(section).rows
    name, count, ahead, least, most = row
    assert (name.text, count.value) == ("random-ticket", 3)
    assert (ahead.value, ahead.deviation) == (pytest.approx(2.0), pytest.approx(1.0))
    reach = 4.302653 / 3**0.5  # Student's t for two degrees of freedom, 97.5 %
    assert (least.value, most.value) == (pytest.approx(2 - reach), pytest.approx(2 + reach))


def test_what_is_forgotten(runs: Path) -> None:
    (cifar, digits) = sections(read([runs]))
    rows = {row[0].text: row for row in bti(cifar).rows}
    assert rows["GPM"][4].value == 7.5
    assert rows["GPM"][5].value == 12.44
    assert rows["TWTA"][4] == Cell(0.0, 0.0, best=True)
    assert rows["finetune"][5].value is None
    assert all(row[5].value is None for row in bti(digits).rows)


def test_the_best_is_marked_references_aside(tmp_path: Path) -> None:
    for method, level in (("twta", 50.0), ("gpm", 60.0), ("joint", 90.0)):
        a_run(tmp_path / method, method=method, level=level, units=8)
    (section,) = sections(read([tmp_path]))
    marked = {row[0].text: row[2].best for row in accuracy(section).rows}
    assert marked == {"TWTA": False, "GPM": True, "joint": False}
    over = overview([section])
    assert {row[0].text: row[1].best for row in over.rows} == marked


def test_calibration_has_its_overview_and_older_runs_a_dash(tmp_path: Path) -> None:
    for method, found in (("twta", 3.0), ("gpm", 50.0), ("er", None)):
        folder = a_run(tmp_path / method, method=method, units=8)
        results = json.loads((folder / "results.json").read_text())
        if found is not None:
            results["inferred"][-1]["calibration_error"] = found
            results["summary"]["accuracy"]["calibration_error"] = found
        (folder / "results.json").write_text(json.dumps(results))
    table = overview(sections(read([tmp_path])), "overview-calibration")
    cells = {row[0].text: row[1] for row in table.rows}
    assert {name: cell.value for name, cell in cells.items()} == {"TWTA": 3, "GPM": 50, "ER": None}
    assert cells["TWTA"].best
    assert words(cells["ER"], table.columns[1]) == "–"


def test_operating_points_find_their_row_of_the_paper(tmp_path: Path) -> None:
    for share, training in ((50.0, 0.5), (8.0, 0.08), (30.0, 0.3)):
        folder = a_run(tmp_path / f"wsn-{share}", method="wsn", nominal=share)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["training"]["density"] = training
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (section,) = sections(read([tmp_path]))
    rows = {row[0].text: (row[4].value, row[8].value) for row in accuracy(section).rows}
    assert rows == {
        "WSN density 0.5": (64.41, 4.2),
        "WSN density 0.3": (None, None),
        "WSN density 0.08": (63.24, 0.68),
    }


def test_the_paper_is_transcribed() -> None:
    content = yaml.safe_load((Path(paper.__file__).parent / "paper.yaml").read_text())
    assert len(content["accuracy"]["rows"]) == 15
    assert len(content["flops"]["rows"]) == 2
    assert len(content["bti"]["rows"]) == 12
    assert all(len(rows) == 5 for rows in content["blocks"].values())
    for table in ("accuracy", "flops", "bti"):
        assert all(len(row["values"]) == 5 for row in content[table]["rows"])
    assert paper.figure("accuracy", "five-datasets", "llt", 6.87) == 75.13
    assert paper.figure("accuracy", "pmnist", "gem", 100) is None
    assert paper.figure("flops", "omniglot-rotation", "sparcl", 5) == 4.4e16
    assert paper.figure("bti", "tiny-imagenet", "twta", 12.5) == 2.5
    assert paper.figure("accuracy", "digits", "twta", 12.5) is None
    assert paper.millions("twta", 3.125) == 0.0975
    assert paper.millions("twta", 12.5) is None  # never the size of J = 32 beside J = 8
    assert paper.accuracy("cifar100", "twta", 12.5) == 66.53
    assert paper.accuracy("cifar100", "twta", 3.125) == 65.40
    assert paper.accuracy("pmnist", "twta", 12.5) == 85.92
    assert paper.accuracy("pmnist", "twta", 25) is None
    assert paper.block_size("cifar100", 3) == {}


def test_numbers_in_words() -> None:
    assert words(Cell(51.62, 0.44), Column("x")) == "51.6 ± 0.4"
    assert words(Cell(51.62, None), Column("x")) == "51.6"
    assert words(Cell(51.62, 0.01), Column("x")) == "51.6"
    assert words(Cell(-0.01), Column("x", "points")) == "0.0"
    assert words(Cell(-3.21), Column("x", "points")) == "−3.2"
    assert words(Cell(1.126e11, 2e9), Column("x", "flops")) == "(1.13 ± 0.02) × 10¹¹"
    assert words(Cell(9.999e15), Column("x", "flops")) == "10.00 × 10¹⁵"
    assert words(Cell(27142.0), Column("x", "count")) == "27,142"
    assert words(Cell(), Column("x")) == "–"


def test_pareto_front_and_overlap() -> None:
    assert front([(3, 5), (1, 1), (2, 5), (4, 4), (5, 9), (1, 0)]) == [(1, 1), (2, 5), (5, 9)]
    same = shared_winners(np.array([[0, 1, 2, 3], [0, 1, 0, 0], [3, 2, 1, 0]]))
    assert same.tolist() == [[100, 50, 0], [50, 100, 25], [0, 25, 100]]


# What may be put together -------------------------------------------------------------------------


def test_only_what_is_comparable_shares_a_section(tmp_path: Path) -> None:
    a_run(tmp_path / "a", preset="small", subset=SUBSET)
    a_run(tmp_path / "b", preset="full", subset="")
    a_run(tmp_path / "c", "digits", tasks=4, subset="")
    a_run(tmp_path / "d", "digits", tasks=9, subset="")
    assert [section.title for section in sections(read([tmp_path]))] == [
        "cifar100 full", "cifar100 small", "digits 4 tasks", "digits 9 tasks",
    ]  # fmt: skip


def test_a_preset_that_changes_one_setting_is_named_by_the_setting(tmp_path: Path) -> None:
    a_run(tmp_path / "a", preset="small", units=4)
    a_run(tmp_path / "b", preset="small+j8", units=8)
    a_run(tmp_path / "c", method="finetune", preset="small", units=4)
    (section,) = sections(read([tmp_path]))
    assert [group.label for group in section.groups][:2] == ["TWTA", "TWTA J = 8"]


def test_a_table_tells_who_has_other_settings_than_most(tmp_path: Path) -> None:
    for name, method in enumerate(("twta", "chain", "independent", "wsn", "gpm")):
        folder = a_run(tmp_path / str(name), method=method)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        wide = method in ("wsn", "gpm")
        config["network"] = {"units": 4 if wide else 8, "widths": [8, 16]}
        config["training"] = {"batch_size": 40 if wide else 20, "lr": 0.05, method: "its own"}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (section,) = sections(read([tmp_path]))
    said = "Settings that most systems here do not have: GPM, WSN: J = 4, batch_size 40."
    assert said in accuracy(section).notes
    assert said in cost(section).notes
    section.groups = [group for group in section.groups if group.method in ("twta", "chain")]
    assert not any("Settings" in note for note in accuracy(section).notes)


def test_one_seed_has_no_deviation_and_little_is_enough(tmp_path: Path, accepted: Accepted) -> None:
    folder = a_run(tmp_path / "runs" / "only", tasks=1)
    for name in ("config.yaml", "measured.json"):
        (folder / name).unlink()
    results = json.loads((folder / "results.json").read_text())
    del results["tasks"][0]["winners"]
    results["inferred"], results["summary"]["accuracy"]["task_inferred"] = [], None
    (folder / "results.json").write_text(json.dumps(results))
    said = accepted("report", folder, "--out", tmp_path / "out")
    assert said.startswith("Wrote ")
    assert "±" not in (tmp_path / "out" / "accuracy.md").read_text()
    (section,) = sections(read([folder]))
    assert cost(section).rows[0][4] == Cell()
    assert not (tmp_path / "out" / "plots" / "cifar100-winners.svg").exists()


def test_a_report_is_made_again_from_the_files_it_keeps(
    runs: Path, report: Path, tmp_path: Path, accepted: Accepted
) -> None:
    kept = report / "runs"
    assert {path.name for path in kept.iterdir()} == {
        f"{path.name}.json" for path in runs.iterdir()
    }
    accepted("report", kept, "--out", tmp_path / "second", "--title", TITLE)
    for file in (each for each in (tmp_path / "second").rglob("*") if each.is_file()):
        assert file.read_bytes() == (report / file.relative_to(tmp_path / "second")).read_bytes()
    few = tmp_path / "few" / "runs"
    few.mkdir(parents=True)
    for file in sorted(kept.iterdir())[:2]:
        shutil.copy(file, few)
    before = {path.name: path.read_bytes() for path in few.iterdir()}
    accepted("report", few, "--out", tmp_path / "few", "--with-runs")  # onto itself
    assert {path.name: path.read_bytes() for path in few.iterdir()} == before


def test_a_run_is_one_file_with_everything_in_it(
    finished: Path, tmp_path: Path, accepted: Accepted
) -> None:
    accepted("report", finished, "--out", tmp_path, "--with-runs")
    text = (tmp_path / "runs" / f"{finished.name}.json").read_text()
    content = json.loads(text)
    config = yaml.safe_load((finished / "config.yaml").read_text())
    results = json.loads((finished / "results.json").read_text())
    assert config.pop("sha256") != results.pop("sha256") != content.pop("sha256")
    assert content.pop("config") == config
    assert content.pop("measured") == json.loads((finished / "measured.json").read_text())
    assert content == results
    for task in content["tasks"]:
        ticket = json.loads((finished / "tickets" / task["name"] / "ticket.json").read_text())
        assert task["winners"] == ticket["winners"]
        line = json.dumps(task, separators=(",", ":"))
        assert line in [each.rstrip(",") for each in text.splitlines()]


def test_run_folders_and_files_can_be_mixed(
    runs: Path, tmp_path: Path, accepted: Accepted, refused: Refused
) -> None:
    twta, gpm = runs / "c-twta-0", runs / "c-gpm-0"
    accepted("report", twta, "--out", tmp_path / "out", "--with-runs")
    kept = tmp_path / "out" / "runs" / "c-twta-0.json"
    (from_file, _) = read([kept, gpm])
    (from_folder, _) = read([twta, gpm])
    assert from_file.name == from_folder.name == "c-twta-0"
    for part in ("results", "config", "measured", "winners", "layers"):
        assert getattr(from_file, part) == getattr(from_folder, part), part
    shutil.copytree(gpm, kept.parent / "c-gpm-0")
    assert [run["method"] for run in read([kept.parent])] == ["gpm", "twta"]
    said = refused("report", twta, kept, "--out", tmp_path / "again")
    assert "are the same run (seed 0)" in said


def test_a_long_run_is_read_from_one_file(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "long", tasks=1500)
    results = json.loads((folder / "results.json").read_text())
    results["matrix"] = [[50.0] * (i + 1) for i in range(1500)]
    for task in results["tasks"]:
        task |= {"accuracy": 50.0, "free": {}}
    write_results(tmp_path / "long.json", results)
    (run,) = read([tmp_path / "long.json"])
    assert len(run.winners) == 1500
    assert run.layers == [6, 2]
    assert len((tmp_path / "long.json").read_text().splitlines()) < 2 * 1500 + 30


def test_nested_settings_of_any_name_tell_systems_apart(tmp_path: Path) -> None:
    for share in (0.0, 0.2):
        folder = a_run(tmp_path / f"share-{share}")
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["a_new_section"] = {"competition": {"share": share}, "epochs": 3}
        config["versions"] = {"rivals": str(share)}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    a_run(tmp_path / "other", method="gpm")
    (section,) = sections(read([tmp_path]))
    labels = {group.label for group in section.groups}
    assert labels == {"GPM", "TWTA competition.share 0.0", "TWTA competition.share 0.2"}


def test_systems_that_differ_in_three_settings_have_three_names(tmp_path: Path) -> None:
    """And a setting that an older version had not is not called None."""
    for share, lr, epochs in itertools.product((0.0, 0.2), (0.0, 0.02), (10, 30)):
        folder = a_run(tmp_path / f"{share}-{lr}-{epochs}")
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["training"] |= {"epochs": epochs, "competition": {"share": share, "rate": lr}}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    a_run(tmp_path / "older")
    (section,) = sections(read([tmp_path]))
    labels = {group.label for group in section.groups}
    assert len(labels) == 9
    assert "TWTA competition.rate 0.0, competition.share 0.2, epochs 30" in labels
    assert not any("None" in label or "(1)" in label for label in labels)


def test_runs_of_one_name_are_not_mixed(runs: Path, tmp_path: Path, refused: Refused) -> None:
    other = a_run(tmp_path / "elsewhere" / "c-twta-0", seed=7)
    said = refused("report", runs, other, "--out", tmp_path / "out", "--with-runs")
    assert "would share one file" in said
    assert not (tmp_path / "out").exists()


def test_a_real_run_is_reported(finished: Path, tmp_path: Path, accepted: Accepted) -> None:
    said = json.loads(accepted("report", finished, "--out", tmp_path / "out", "--json"))
    assert said["runs"] == [str(finished)]
    assert all(Path(file).exists() for file in said["files"])
    names = {Path(file).name for file in said["files"]}
    for plot in (
        "matrix",
        "over-tasks",
        "forgetting",
        "bytes",
        "flops",
        "winners",
        "overlap",
        "room",
    ):
        assert f"digits-{plot}.svg" in names
    results = json.loads((finished / "results.json").read_text())
    (row,) = table_of(tmp_path / "out" / "accuracy.csv")
    assert float(row["task known %"]) == pytest.approx(results["summary"]["accuracy"]["task_known"])
    overlap = results["summary"]["overlap"]
    (run,) = read([finished])
    assert shared_winners(np.array(run.winners))[0, 1] == pytest.approx(overlap)


def test_the_same_runs_give_the_same_bytes(runs: Path, report: Path) -> None:
    for table in ("accuracy", "cost", "bti"):
        again = [build(section) for section in sections(read([runs])) for build in [TABLES[table]]]
        assert (
            markdown([(s, t) for s, t in zip(("cifar100", "digits"), again, strict=True)])
            == (report / f"{table}.md").read_text()
        )
    section = sections(read([runs]))[1]
    for plot in (over_tasks, winner_map):
        figure = plot(section)
        assert figure is not None
        assert figure.svg + "\n" == (report / "plots" / f"{figure.name}.svg").read_text()


def test_torch_is_never_imported(runs: Path, tmp_path: Path, spawn: Spawn) -> None:
    code = (
        "import sys\n"
        "from rivals.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as ended:\n    assert ended.code == 0, ended.code\n"
        "print(sorted(m for m in sys.modules if m.partition('.')[0] in ('torch', 'scipy')))\n"
    )
    few = [runs / f"d-{method}-0" for method in ("twta", "gpm")]
    printed, errors = spawn("-c", code, "report", *few, "--out", tmp_path / "out").communicate()
    assert printed.splitlines()[-1] == "[]", errors


# Which runs, and runs on their way ----------------------------------------------------------------


def test_filters_take_runs_by_benchmark_method_and_preset(
    runs: Path, tmp_path: Path, stopped: Path, accepted: Accepted, refused: Refused
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    shutil.copytree(stopped, tmp_path / "runs" / "stopped")  # of twta on digits, not finished
    out = ("--out", tmp_path / "out")
    only = RunFilter.of("cifar100", "twta, gpm", "small")
    found = read([tmp_path / "runs"], only=only)
    assert {run.name[:5] for run in found} == {"c-twt", "c-j32", "c-gpm"}
    assert "is not finished" in refused("report", tmp_path / "runs", "--method", "twta", *out)
    one = ("--method", "gpm", "--benchmark", "digits")
    said = json.loads(accepted("report", tmp_path / "runs", *one, *out, "--json"))
    assert [Path(run).name for run in said["runs"]] == [f"d-gpm-{seed}" for seed in range(3)]
    said = refused("report", tmp_path / "runs", "--method", "twta,wsn", *out)
    assert said.endswith("No run has the method 'wsn'; known are finetune, gpm, twta.")
    said = refused("report", runs, "--preset", ",", *out)
    assert said.endswith("--preset names nothing; write names with commas between.")


def log_of(folder: Path, tasks: int = 4, steps: int = 30) -> None:
    """A log whose loss is the number of the task at every step, entropy at the first half."""
    lines = ["step,task,loss,accuracy,entropy"]
    for at in range(tasks * steps):
        task, entropy = at // steps + 1, "" if at % steps >= steps // 2 else "0.5"
        lines.append(f"{at},{task},{task},{10 * task},{entropy}")
    (folder / "log").mkdir()
    (folder / "log" / "steps.csv").write_text("\n".join(lines) + "\n")


def test_learning_curves_are_those_of_the_log(tmp_path: Path) -> None:
    for method in ("twta", "gpm"):
        log_of(a_run(tmp_path / method, method=method))
    a_run(tmp_path / "er", method="er")  # without a log
    (section,) = sections(read([tmp_path]))
    ours = next(group for group in section.groups if group.method == "twta")
    curves = ours.runs[0].curves("loss")
    assert [len(steps) for steps, _ in curves] == [30] * 4
    assert [steps[-1] for steps, _ in curves] == [29] * 4
    assert [set(values) for _, values in curves] == [{1}, {2}, {3}, {4}]
    assert [len(values) for _, values in ours.runs[0].curves("entropy")] == [15] * 4
    curve = mean_curve(ours, "accuracy")
    assert curve is not None
    assert curve.tolist() == pytest.approx([25] * 41)
    assert smooth(np.arange(60.0))[10:12].tolist() == [10, 11]
    mean_of_methods, of_tasks = within_a_task(section), every_task(section)
    assert mean_of_methods is not None
    assert of_tasks is not None
    assert "GPM" in mean_of_methods.svg
    assert ">ER<" not in mean_of_methods.svg
    assert "entropy of the competition" in of_tasks.svg
    section.groups = [group for group in section.groups if group.method == "er"]
    assert within_a_task(section) is None


def test_damaged_logs_are_one_sentence(tmp_path: Path, refused: Refused) -> None:
    folder = a_run(tmp_path / "run")
    log_of(folder)
    log = folder / "log" / "steps.csv"
    whole = log.read_text()
    log.write_text(f"{whole}120,5,0.1")  # a killed process left half a line
    (run,) = read([folder])
    assert len(run.steps["step"]) == 120
    for text in ("loss,step\n1,2\n", f"{whole}1,2\n", f"{whole}-1,1,1,1,\n"):
        log.write_text(text)
        assert "log/steps.csv is damaged: " in refused("report", folder, "--out", tmp_path / "out")
    log.write_text(f"{whole}121,5,low,1,\n")
    assert "a word where a number" in refused("report", folder, "--out", tmp_path / "out")
    log.unlink()
    log.symlink_to("/etc/hosts")
    assert "links are not followed" in refused("report", folder, "--out", tmp_path / "out")


def test_following_shows_runs_on_their_way_and_ends_on_a_signal(
    runs: Path, stopped: Path, tmp_path: Path
) -> None:
    """The signal comes when the first page is written: nobody goes on with the stopped run."""
    shutil.copytree(runs / "c-gpm-0", tmp_path / "runs" / "done")
    shutil.copytree(stopped, tmp_path / "runs" / "halfway")
    log_of(tmp_path / "runs" / "halfway", tasks=2)
    page, pages = tmp_path / "out" / "report.html", []

    def interrupt() -> None:
        while not page.exists():
            time.sleep(0.01)
        pages.append(page.read_text())
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "runs"), "--follow", "--out", str(page.parent)])
    watcher.join()
    assert ended.value.code == 130
    assert '<meta http-equiv="refresh" content="5">' in pages[0]
    text = page.read_text()
    assert "http-equiv" not in text, "the last page does not ask for itself again"
    assert "Runs that are not finished" in text
    assert ">halfway</th>" in text
    assert 'id="running-0"' in text
    assert 'id="cifar100"' in text


def test_following_ends_when_every_planned_run_is_finished(
    runs: Path, tmp_path: Path, accepted: Accepted, refused: Refused
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    names = tuple(path.name for path in (tmp_path / "runs").iterdir())
    GridState(names, at_work=True).write(tmp_path / "runs")
    said = accepted("report", tmp_path / "runs", "--method", "gpm", "--follow", "--out", tmp_path)
    assert said.strip() == f"The report of 6 runs is {tmp_path / 'report.html'}."
    said = refused("report", runs, "--follow", "--json", "--out", tmp_path)
    assert "leave out --finished-only, --with-runs and --json" in said


# Mistakes -----------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(
    tmp_path: Path, stopped: Path, refused: Refused, accepted: Accepted
) -> None:
    out = tmp_path / "out"
    good = a_run(tmp_path / "runs" / "good")
    (tmp_path / "empty").mkdir()
    assert "holds no run" in refused("report", tmp_path / "empty", "--out", out)
    assert "(No such file or directory)" in refused("report", tmp_path / "none", "--out", out)
    assert "holds no run" in refused("report", good / "config.yaml", "--out", out)
    assert "is not finished (1 tasks are done)" in refused("report", stopped, "--out", out)
    said = refused("report", stopped, "--finished-only", "--out", out)
    assert "None of these runs is finished" in said
    (tmp_path / "file").write_text("")
    assert "is a file" in refused("report", good, "--out", tmp_path / "file")
    assert "Could not make" in refused("report", good, "--out", tmp_path / "file" / "below")
    assert "Missing argument" in refused("report", "--out", out)
    again = a_run(tmp_path / "runs" / "again")
    assert "are the same run (seed 0)" in refused("report", good, again, "--out", out)
    assert not out.exists() or not list(out.iterdir())
    shutil.copytree(stopped, tmp_path / "both" / "stopped")
    shutil.copytree(good, tmp_path / "both" / "good")
    said = accepted("report", tmp_path / "both", "--finished-only", "--out", out)
    assert "from 1 runs;" in said


def test_damaged_files_are_one_sentence(tmp_path: Path, refused: Refused) -> None:
    good = a_run(tmp_path / "run")
    results = json.loads((good / "results.json").read_text())
    broken: list[tuple[str, str]] = [
        ("{", "not valid JSON"),
        ("[]", "holds no JSON object"),
        (json.dumps({**results, "matrix": 3}), "does not fit its schema"),
        (json.dumps({**results, "matrix": []}), "must have one row for each task"),
        (json.dumps({**results, "tasks": [], "matrix": []}), "has no tasks"),
        (json.dumps({**results, "summary": {"bti": 1}}), "does not fit its schema"),
    ]
    for value in (101, -1, "50", None, True):
        matrix = [*results["matrix"][:-1], [*results["matrix"][-1][:-1], value]]
        broken.append((json.dumps({**results, "matrix": matrix}), "numbers from 0 to 100"))
    for wrong in ([["0"]], [[-1]], [[1.5]]):
        tasks = [{**task, "winners": wrong} for task in results["tasks"]]
        broken.append((json.dumps({**results, "tasks": tasks}), "must be unit numbers"))
    for text, reason in broken:
        (good / "results.json").write_text(text)
        assert reason in refused("report", good, "--out", tmp_path / "out")
    (good / "results.json").write_text(json.dumps(results))
    (good / "config.yaml").write_text("a: [")
    assert "is not valid YAML" in refused("report", good, "--out", tmp_path / "out")
    (good / "config.yaml").unlink()
    (good / "measured.json").write_text("x")
    assert "not valid JSON" in refused("report", good, "--out", tmp_path / "out")


def test_names_cannot_break_out(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>|$x_1^{2}$ & 50 % \\end{table} `a` **b**"
    a_run(tmp_path / "a", method=evil, units=4, names="$\\frac{ <b>{}", subset=f"only {evil}")
    a_run(tmp_path / "b", method="twta", units=4, subset=f"only {evil}")
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)])
    assert ended.value.code == 0
    page = (out / "report.html").read_text()
    assert "<script>alert" not in page
    assert page.count("<script>") == 1
    for plot in (out / "plots").glob("*.svg"):
        assert "<script" not in plot.read_text()
    tex = (out / "accuracy.tex").read_text()
    assert tex.count("\\end{table}") == 1
    rows = [line for line in tex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    cells = [re.findall(r"(?<!\\)&", row) for row in rows]
    assert len({len(each) for each in cells}) == 1
    lines = [line for line in (out / "accuracy.md").read_text().splitlines() if line[:1] == "|"]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert "<script>" not in "".join(lines).replace("\\<", "")


def test_a_word_in_a_config_that_is_no_mapping(tmp_path: Path) -> None:
    good = a_run(tmp_path / "run")
    (good / "config.yaml").write_text("just words")
    with pytest.raises(RivalsError, match="holds no settings"):
        read([good])


# The page -----------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_outside(report: Path) -> None:
    page = (report / "report.html").read_text()
    addresses = set(re.findall(r"""(?:href|src)=["']([^"'#][^"']*)""", page))
    assert all(address.startswith("data:") for address in addresses), addresses
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:href="|url\()#([^")]+)', page):
        assert target in ids, target
    assert "<title>A &amp; B &lt;compared&gt;</title>" in page


@pytest.fixture(scope="module")
def browser() -> Any:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.")
    if CHROMIUM is None:
        pytest.skip("There is no Chromium here; apt-get install chromium.")
    with sync_api.sync_playwright() as playwright:
        flags = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def test_the_page_in_a_real_browser(browser: Any, report: Path, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    asked: list[str] = []
    troubles: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text))
    page.goto((report / "report.html").as_uri())
    assert page.locator("h1").inner_text() == "A & B <compared>"

    table = page.locator("#cifar100 table").first
    column = 2  # task known
    head = table.locator("thead th").nth(column)

    def shown() -> list[float]:
        cells = table.locator(f"tbody tr > :nth-child({column + 1})").all_inner_texts()
        return [float(cell.split(" ±")[0]) for cell in cells]

    rows = [row for row in table_of(report / "accuracy.csv") if row["benchmark"] == "cifar100"]
    expected = sorted(round(float(row["task known %"]), 1) for row in rows)
    assert sorted(shown()) == pytest.approx(expected)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert shown() == pytest.approx(expected[::-1])
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert shown() == pytest.approx(expected)
    paper_column = table.locator("thead th").nth(4)
    paper_column.get_by_role("button").click()
    assert head.get_attribute("aria-sort") is None
    figures = table.locator("tbody tr > :nth-child(5)").all_inner_texts()
    assert figures[-1] == "–"  # what is missing comes last
    table.locator("thead th").first.get_by_role("button").click()
    names = table.locator("tbody th").all_inner_texts()
    assert names == sorted(names, key=str.lower)

    assert page.locator("figure svg").count() == len(list((report / "plots").glob("*.svg")))
    for figure in page.locator("figure svg").all():
        box = figure.bounding_box()
        assert box["width"] > 250
        assert box["height"] > 80
    assert page.get_by_role("img").count() == page.locator("figure").count()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    shot = page.screenshot(path=str(tmp_path / "desktop.png"), full_page=True)
    assert shot.startswith(b"\x89PNG")
    assert len(shot) > 50_000

    page.emulate_media(color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    numbers = [[int(n) for n in re.findall(r"\d+", each)[:3]] for each in (light, dark)]
    assert min(numbers[0]) > 230
    assert max(numbers[1]) < 50
    ink = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    assert min(int(n) for n in re.findall(r"\d+", ink)[:3]) > 120

    page.emulate_media(color_scheme="light", media="print")
    assert page.locator("nav").is_hidden()
    page.emulate_media(media="screen")
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=str(tmp_path / "phone.png"))
    assert troubles == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()
