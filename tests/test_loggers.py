"""Logs of trainings: what is in them, how a killed run goes on with them."""

from __future__ import annotations

import csv
import importlib.util
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rivals
from forge import Forge
from rivals.errors import RivalsError
from rivals.experiment.grid_state import NAME
from rivals.experiment.report.live import follow
from rivals.experiment.run_settings import parse_overrides
from rivals.learn.training_log import PALETTE, winner_picture
from rivals.logs.csv_log import read_log
from teaching import QUICK, folder
from toys import CHANGES

SETTINGS = parse_overrides([*CHANGES, "competition.share=0.4"])  # ten steps a task, four compete
HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
NAMES = "csv,tensorboard" if HAS_TENSORBOARD else "csv"


def table(path: Path, *without: str) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: text for name, text in row.items() if name not in without} for row in rows]


class Kept(rivals.Logger):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def settings(self, values: Any) -> None:
        self.told.append(("settings", values))

    def scalars(self, values: Any, step: int) -> None:
        self.told.append(("scalars", (step, dict(values))))

    def image(self, name: str, image: Any, step: int) -> None:
        self.told.append((name, (step, image.shape)))

    def rewind(self, step: int) -> None:
        self.told.append(("rewind", step))

    def close(self) -> None:
        self.told.append(("close", None))


Logged = tuple[rivals.RunResults, Kept]


class Crash(rivals.Callback):
    """Ends the run without another word at a step of the second task."""

    def on_step(self, trainer: Any, result: Any) -> None:
        if len(trainer.method.known) == 2 and trainer.method.position.step == 6:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """A run that logs every step, and what a logger of one's own heard of it."""
    own, out = Kept(), tmp_path_factory.mktemp("logged") / "run"
    log = [NAMES, own]
    return rivals.run("digits", settings=SETTINGS, out=out, log=log, log_every=1), own


# What is logged -----------------------------------------------------------------------------------


def test_the_log_changes_no_bit_of_the_results(
    logged: Logged,
    tmp_path: Path,
    outcome: Callable[[Path], dict[str, Any]],
) -> None:
    rivals.run("digits", settings=SETTINGS, out=tmp_path / "run")
    with_log = outcome(logged[0].folder)
    with_log["files"] = {n: m for n, m in with_log["files"].items() if not n.startswith("log")}
    assert with_log == outcome(tmp_path / "run")


def test_steps_of_all_tasks_are_in_one_table(logged: Logged) -> None:
    folder_ = logged[0].folder
    log = read_log(folder_ / "log" / "steps.csv")
    steps = json.loads((folder_ / "measured.json").read_text())["steps"]
    total, first = sum(steps.values()), steps[next(iter(steps))]
    assert len(steps) == 2
    assert log["step"].tolist() == list(range(total))
    assert log["task"].tolist() == [1] * first + [2] * (total - first)
    assert (log["loss"] > 0).all()
    assert ((log["accuracy"] >= 0) & (log["accuracy"] <= 100)).all()
    assert (log["memory_mb"] > 50).all()
    assert log["lr"][0] == pytest.approx(0.05)
    assert (np.diff(log["lr"][:first]) < 0).all()
    competing = ~np.isnan(log["entropy"])
    assert competing[:first].tolist() == [True] * 4 + [False] * (first - 4)
    assert (log["entropy"][competing] > 0).all()


def test_tasks_say_what_the_results_say(logged: Logged) -> None:
    results, content = logged[0], logged[0].content
    rows = table(results.folder / "log" / "tasks.csv")
    means = [np.mean(row) for row in results.matrix]
    assert [float(row["accuracy_known"]) for row in rows] == pytest.approx(means)
    assert [float(row["accuracy_new"]) for row in rows] == pytest.approx(
        [row[-1] for row in results.matrix]
    )
    last, summary = rows[-1], content["summary"]
    assert float(last["accuracy_unknown"]) == pytest.approx(summary["accuracy"]["task_inferred"])
    assert float(last["forgetting"]) == pytest.approx(summary["forgetting"])
    assert float(last["bytes"]) == sum(summary["bytes"].values())
    assert float(last["entropy"]) == pytest.approx(content["tasks"][-1]["entropy"][1])
    assert float(last["winners_changed"]) == pytest.approx(content["tasks"][-1]["winners_changed"])
    assert float(last["memory_mb"]) > 50
    pictures = sorted((results.folder / "log" / "images").iterdir())
    assert [int(path.stem.rpartition("-")[2]) for path in pictures] == [
        int(row["step"]) for row in rows
    ]
    winners = [unit for layer in content["tasks"][0]["winners"] for unit in layer]
    with Image.open(pictures[-1]) as picture:
        pixels = np.asarray(picture)
    assert (pixels[pixels.shape[0] // 4, 5] == PALETTE[winners[0]]).all()  # of two tasks


def test_a_logger_of_ones_own_hears_everything(logged: Logged) -> None:
    kinds = [kind for kind, _ in logged[1].told]
    assert kinds[:2] == ["rewind", "settings"]
    assert kinds[-1] == "close"
    assert kinds.count("winners") == 2
    said = dict(logged[1].told[:2])
    assert said["rewind"] == 0
    assert said["settings"]["training.competition.share"] == 0.4
    assert said["settings"]["seed"] == 0


def test_a_picture_of_winners() -> None:
    assert winner_picture([[], []]) is None
    shape = (np.array([2, 2 + 3 + 1]) * 10).tolist()
    picture = winner_picture([[[0, 1], [0, 0, 11]], [[1, 1], [2, 0, 1]]])
    assert picture is not None
    assert list(picture.shape) == [*shape, 3]
    assert (picture[5, 15] == PALETTE[1]).all()
    assert (picture[5, 25] == 255).all(), "a line between layers"
    assert (picture[5, 55] < PALETTE[1]).any(), "unit 11 is a darker 1"
    many = winner_picture([[[0] * 5000]] * 300)
    assert many is not None
    assert many.shape == (400, 5000, 3)
    flat = winner_picture([[[0] * 40]])
    assert flat is not None
    assert flat.shape == (100, 400, 3), "a quarter as high as wide"


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="tensorboard is not installed: rivals[tensorboard]")
def test_tensorboard_reads_what_was_logged(logged: Logged) -> None:
    log = logged[0].folder / "log"
    assert events(log) == table(log / "steps.csv", "memory_mb")
    found = accumulated(log)
    assert len(found.Images("winners")) == 2
    assert [each.step for each in found.Scalars("tasks/forgetting")] == [
        int(row["step"]) for row in table(log / "tasks.csv")
    ]


def accumulated(log: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(log / "tensorboard"), {"scalars": 0, "images": 0}).Reload()


def events(log: Path) -> list[dict[str, str]]:
    """The steps that TensorBoard shows, as the table has them."""
    found, rows = accumulated(log), {}
    for name in ("task", "loss", "accuracy", "lr", "entropy"):
        for each in found.Scalars(f"steps/{name}"):
            row = rows.setdefault(each.step, {"step": str(each.step)})
            assert name not in row, "logged twice"
            row[name] = each.value
    own = table(log / "steps.csv", "memory_mb")
    for row in own:  # TensorBoard has 32 bits
        for name, text in row.items():
            value = rows.get(int(row["step"]), {}).get(name, "")
            if text and value != "" and float(value) == pytest.approx(float(text), rel=1e-5):
                rows[int(row["step"])][name] = text
            elif name not in rows.get(int(row["step"]), {}):
                rows.setdefault(int(row["step"]), {})[name] = ""
    return [rows[step] for step in sorted(rows)]


# Stopped, killed, resumed -------------------------------------------------------------------------


def test_steps_after_the_last_checkpoint_are_logged_once(logged: Logged, tmp_path: Path) -> None:
    own, log = Kept(), tmp_path / "run" / "log"
    options: dict[str, Any] = {
        "settings": SETTINGS, "out": tmp_path / "run", "log": [NAMES, own], "log_every": 1,
        "save_every": 1e9,
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        rivals.run("digits", callbacks=[Crash()], **options)
    before = table(log / "steps.csv")
    with (log / "steps.csv").open("a") as file:
        file.write("99,2,0.")  # half a line
    rivals.run("digits", resume=True, **options)
    whole = logged[0].folder / "log"
    first = [value for kind, value in own.told if kind == "rewind"][1]
    assert 0 < first < len(before), "steps were logged that the checkpoint does not have"
    assert table(log / "steps.csv", "memory_mb") == table(whole / "steps.csv", "memory_mb")
    assert table(log / "tasks.csv", "memory_mb") == table(whole / "tasks.csv", "memory_mb")
    assert [path.name for path in sorted((log / "images").iterdir())] == [
        path.name for path in sorted((whole / "images").iterdir())
    ]
    if HAS_TENSORBOARD:
        assert events(log) == table(log / "steps.csv", "memory_mb")


def test_a_killed_run_continues_its_log(logged: Logged, tmp_path: Path, forge: Forge) -> None:
    """Killed by the system as soon as a step of the second task is saved."""
    out, errors = tmp_path / "run", tmp_path / "errors"
    changes = [word for change in CHANGES for word in ("--set", change)]
    words = ["run", "digits", *changes, "--set", "competition.share=0.4", "--out", str(out)]
    words += ["--log", "csv", "--log-every", "1", "--save-every", "0"]
    child = forge.start(*words, errors=errors)
    manifest = out / "checkpoint" / "manifest.json"
    while not child.ended() and not (manifest.exists() and '"done": 1' in manifest.read_text()):
        time.sleep(0.001)
    child.signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert forge.start(*words, "--resume", errors=errors).wait() == 0
    assert errors.read_text() == ""
    whole = logged[0].folder / "log"
    for name in ("steps.csv", "tasks.csv"):
        found = table(out / "log" / name, "memory_mb")
        assert found == table(whole / name, "memory_mb"), name


# Other places -------------------------------------------------------------------------------------


def test_mlflow_has_every_step_once(
    logged: Logged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed; mlflow-skinny will do")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    options: dict[str, Any] = {
        "settings": SETTINGS, "out": tmp_path / "run", "log": "mlflow", "log_every": 1,
        "save_every": 1e9,
    }  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        rivals.run("digits", callbacks=[Crash()], **options)
    rivals.run("digits", resume=True, **options)
    run = json.loads((tmp_path / "run" / "log" / "mlflow.json").read_text())["run"]
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run, "steps/loss")
    expected = table(logged[0].folder / "log" / "steps.csv")
    assert [each.step for each in history] == [int(row["step"]) for row in expected]
    assert [each.value for each in history] == pytest.approx(
        [float(row["loss"]) for row in expected]
    )
    found = client.get_run(run)
    assert found.info.status == "FINISHED"
    assert found.data.params["training.competition.share"] == "0.4"
    pictures = [each.path for each in client.list_artifacts(run, "images")]
    assert len([path for path in pictures if path.endswith(".png")]) == 2


def test_wandb_offline_writes_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    out = tmp_path / "run"
    rivals.run("digits", settings={**SETTINGS, "tasks": 1}, out=out, log="wandb")
    wandb.teardown()  # its process writes the last bytes when it ends
    number = json.loads((out / "log" / "wandb.json").read_text())["run"]
    (stored,) = (out / "log" / "wandb").glob(f"offline-run-*-{number}/run-{number}.wandb")
    content = stored.read_bytes()
    for name in (b"steps/loss", b"tasks/accuracy_known", b"winners"):
        assert name in content


def test_learning_a_task_is_logged_beside_the_model(tmp_path: Path) -> None:
    pictures, model = folder(tmp_path / "low", (0, 1), 30), rivals.Model(tmp_path / "parts")
    learned = model.learn(pictures, log="csv", log_every=1, **{**QUICK, "epochs": 20})
    log = tmp_path / "parts-log" / "low"
    (row,) = table(log / "tasks.csv")
    assert float(row["accuracy"]) == pytest.approx(learned.accuracy)
    assert int(row["bytes"]) == learned.facts.bytes
    rows = table(log / "steps.csv")
    assert [int(each["step"]) for each in rows] == list(range(learned.facts.steps))
    assert any(each["validation_accuracy"] for each in rows)
    assert not list((tmp_path / "parts").glob("log*")), "a model's folder holds the model alone"


def test_a_grid_is_logged_and_followed(tmp_path: Path) -> None:
    """A real comparison, whose only run has a process of its own, and a report that follows it."""
    out, ended = tmp_path / "runs", []
    settings = {**SETTINGS, "epochs": 40}

    def compare() -> None:
        ended.extend(rivals.compare("digits", "twta", settings=settings, out=out, log="csv"))

    worker = threading.Thread(target=compare)
    worker.start()
    while worker.is_alive() and not (out / NAME).exists():
        time.sleep(0.01)
    pages: list[str] = []
    found = follow(
        [out], tmp_path / "report", "Live",
        written=lambda runs: pages.append((tmp_path / "report" / "report.html").read_text()),
    )  # fmt: skip
    worker.join()
    assert [each.status for each in ended] == ["finished"]
    assert [run.complete for run in found] == [True]
    assert all('http-equiv="refresh"' in page for page in pages)
    assert pages, "the report was there before the run was finished"
    last = (tmp_path / "report" / "report.html").read_text()
    assert 'http-equiv="refresh"' not in last
    assert "Learning curves within a task" in last
    assert len(found[0].steps["step"]) > 10


# Mistakes -----------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(
    tmp_path: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "digits", "--out", tmp_path / "run")
    assert "did you mean tensorboard?" in refused(*words, "--log", "csv,tensorbord")
    assert "--log names nothing" in refused(*words, "--log", ",")
    assert "--log-every is 0" in refused(*words, "--log", "csv", "--log-every", "0")
    grid = ("compare", "--benchmarks", "digits", "--out", tmp_path / "grid")
    assert "no logger named 'cvs'" in refused(*grid, "--log", "cvs")
    lesson = ("learn", folder(tmp_path / "low", (0, 1), 3), "--model", tmp_path / "model")
    assert "no logger named 'cvs'" in refused(*lesson, "--log", "cvs")
    for name, words_ in (
        ("tensorboard", "pip install 'rivals[tensorboard]'"),
        ("mlflow", "pip install mlflow"),
        ("wandb", "pip install wandb"),
    ):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
        assert words_ in refused(*words, "--log", name)
    with pytest.raises(RivalsError, match="A logger is of type int"):
        rivals.run("digits", out=tmp_path / "run", log=3)  # type: ignore[arg-type]
    assert {path.name for path in tmp_path.iterdir()} == {"low"}
