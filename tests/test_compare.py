"""`rivals compare`: what is run, in which order, and what happens when something goes wrong."""

from __future__ import annotations

import doctest
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from rivals.cli.compare_screen import CompareScreen
from rivals.errors import RivalsError
from rivals.experiment.grid import comparison as comparison_module
from rivals.experiment.grid.comparison import Comparison, NoDisplay, Outcome, compare, next_run
from rivals.experiment.grid.engine import Ended, Event, GridJob, Progress
from rivals.experiment.grid.grid_file import PlannedRun, from_file, from_words
from rivals.experiment.grid.process_engine import Processes, Worker
from rivals.experiment.grid.run_status import read_status
from rivals.experiment.grid.variants import variants
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.io.files import write_json
from rivals.io.locks import FolderLock

Accepted = Callable[..., str]
Refused = Callable[..., str]
Spawn = Callable[..., Any]
ROOT = Path(__file__).parent.parent


class Recorder(NoDisplay):
    """Progress callbacks that remember."""

    def __init__(self) -> None:
        self.started_runs: list[str] = []
        self.progress: list[Progress] = []

    def started(self, run: PlannedRun) -> None:
        self.started_runs.append(run.folder)

    def progressed(self, progress: Progress) -> None:
        self.progress.append(progress)


# What to run --------------------------------------------------------------------------------------


def grid_file(folder: Path, text: str) -> Path:
    path = folder / "grid.yaml"
    path.write_text(text)
    return path


def test_options_become_a_grid() -> None:
    runs = from_words("digits,digits-permuted", "twta, finetune", "0,2-3", "default", ["epochs=3"])
    assert len(runs) == 2 * 2 * 3
    assert {run.seed for run in runs} == {0, 2, 3}
    first = runs[0]
    assert first.folder == "digits-twta-default-0"
    assert first.settings().training.epochs == 3
    assert first.command(Path("out")) == (
        "rivals run digits --method twta --preset default --set epochs=3 --seed 0 "
        "--out out/digits-twta-default-0"
    )


def test_all_means_every_method() -> None:
    found = {run.method for run in from_words("digits", "all", "0", "default", [])}
    assert {"twta", "finetune", "joint", "independent", "chain", "random-ticket"} <= found


def test_a_file_holds_groups_with_seeds_of_their_own(tmp_path: Path) -> None:
    text = """
        preset: default
        set: {epochs: 4}
        groups:
          - benchmarks: [digits, digits-permuted]
            methods: [twta, random-ticket]
            seeds: [0, 1, 2]
          - benchmarks: digits
            methods: [finetune, joint]
          - benchmarks: [digits]
            set: {units: 16, widths: [16, 32, 64]}
            name: wide
    """
    runs = from_file(grid_file(tmp_path, text))
    assert len(runs) == 2 * 2 * 3 + 2 + 1
    assert {run.seed for run in runs if run.method == "joint"} == {0}
    wide = runs[-1]
    assert (wide.method, wide.folder) == ("twta", "digits-twta-default-wide-0")
    settings = wide.settings()
    assert (settings.network.widths, settings.network.units) == ((16, 32, 64), 16)
    assert settings.training.epochs == 4


def test_what_stands_twice_is_run_once(tmp_path: Path) -> None:
    group = "  - {benchmarks: [digits], methods: [twta, finetune]}\n"
    assert len(from_file(grid_file(tmp_path, "groups:\n" + 2 * group))) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("benchmarks: [digits]\nmethod: twta\n", "did you mean methods"),
        ("benchmarks: [digit]\n", "did you mean digits"),
        ("benchmarks: [digits]\nmethods: [twtta]\n", "did you mean twta"),
        ("benchmarks: [digits]\nset: {epoch: 3}\n", "did you mean epochs"),
        ("benchmarks: [digits]\nset: 3\n", "set must hold settings"),
        ("benchmarks: [digits]\nseeds: [-1]\n", "seeds must be"),
        ("benchmarks: [digits]\nseeds: zero\n", "seeds must be"),
        ("benchmarks: []\n", "benchmarks must be a list of names"),
        ("benchmarks: [digits]\nname: a/b\n", "must consist of letters"),
        ("methods: [twta]\n", "has no benchmarks"),
        ("groups: 3\n", "groups must be a list"),
        ("groups: []\n", "nothing to run"),
        ("[1, 2]\n", "holds no groups"),
        ("a: [\n", "not valid YAML (line 2)"),
        (
            "groups:\n  - {benchmarks: [digits]}\n  - {benchmarks: [digits], set: {epochs: 9}}\n",
            "two different runs would share the folder digits-twta-default-0",
        ),
    ],
)
def test_a_wrong_grid_is_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(RivalsError, match=r"^The grid .*grid\.yaml") as found:
        from_file(grid_file(tmp_path, text))
    assert reason in str(found.value)


def test_a_wrong_command_is_one_sentence(tmp_path: Path, refused: Refused) -> None:
    base = ("compare", "--benchmarks", "digits", "--out", tmp_path / "out")
    assert "'x' is no seed" in refused(*base, "--seeds", "x")
    assert "begin with the less" in refused(*base, "--seeds", "3-1")
    assert "did you mean twta" in refused(*base, "--methods", "twtaa")
    assert "did you mean ray" in refused(*base, "--engine", "rai")
    assert "add --engine ray" in refused(*base, "--address", "auto")
    assert "at least 1" in refused(*base, "--workers", "0")
    assert "must not be negative" in refused(*base, "--save-every", "-1")
    assert "is not a folder" in refused(*base, "--data", tmp_path / "nowhere")
    assert "There is nothing to run" in refused("compare")
    assert "(No such file or directory)" in refused("compare", tmp_path / "none.yaml")
    grid = grid_file(tmp_path, "benchmarks: [digits]\n")
    assert "leave out --methods" in refused("compare", grid, "--methods", "twta")
    (tmp_path / "file").write_text("")
    assert "is a file" in refused("compare", grid, "--out", tmp_path / "file")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_the_folder_of_a_run_is_not_taken(finished: Path, refused: Refused) -> None:
    said = refused("compare", "--benchmarks", "digits", "--out", finished)
    assert "is the folder of a run" in said


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks").rglob("*.yaml")), ids=lambda path: path.stem
)
def test_our_own_grids_are_valid(path: Path) -> None:
    assert from_file(path)


# In which order -----------------------------------------------------------------------------------


def test_runs_start_in_the_order_of_the_grid_and_the_longest_first_when_timed() -> None:
    runs = from_words("digits,digits-permuted", "twta,finetune", "0,1", "default", [])
    assert next_run(runs, {}) is runs[0]
    seconds = {runs[0].kind: [10.0, 20.0], runs[2].kind: [40.0], runs[3].kind: [5.0]}
    assert next_run(runs, seconds) is runs[1]  # nothing is known of it
    assert next_run([*runs[2:4], *runs[4:]], {**seconds, runs[1].kind: [16.0]}) is runs[2]
    assert next_run([runs[4], runs[5]], {**seconds, runs[1].kind: [16.0]}) is runs[5]


def test_finished_runs_say_how_long_the_others_take(tmp_path: Path, changes: list[str]) -> None:
    """One kind lasts long: its second seed starts before those of the others."""
    runs = [PlannedRun("digits", m, seed=s) for s in (0, 1) for m in ("twta", "chain", "er")]

    class Timed(Sleepers):
        def events(self, timeout: float) -> list[Event]:
            found = super().events(timeout)
            for each in found:
                took = 99.0 if each.run.method == "chain" else 1.0
                comparison.seconds[each.run.kind].append(took)
            return found

    display, engine = Recorder(), Timed(lambda run: 0.01, workers=1)
    comparison = Comparison(runs, tmp_path, engine, display)
    comparison.go()
    names = [run.folder for run in runs]
    assert display.started_runs == [*names[:3], names[4], names[3], names[5]]


class Sleepers:
    """An engine whose runs do nothing but last."""

    def __init__(self, lasts: Callable[[PlannedRun], float], workers: int = 2) -> None:
        self.workers, self.lasts = workers, lasts
        self.running: dict[PlannedRun, float] = {}
        self.most = 0

    def start(self, job: GridJob) -> None:
        self.running[job.run] = time.monotonic() + self.lasts(job.run)
        self.most = max(self.most, len(self.running))

    def events(self, timeout: float) -> list[Event]:
        time.sleep(max(0.0, min([timeout, *(e - time.monotonic() for e in self.running.values())])))
        over = [run for run, end in self.running.items() if end <= time.monotonic()]
        for run in over:
            del self.running[run]
        return [
            Ended(run, "failed", "no luck") if run.method == "m1" else Ended(run, "finished")
            for run in over
        ]

    def stop(self) -> None: ...
    def close(self) -> None: ...


def with_names(count: int) -> list[PlannedRun]:
    return [
        PlannedRun("digits", method, seed=seed)
        for seed in range(count)
        for method in ("twta", "m1")
    ]


def test_a_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    engine = Sleepers(lambda run: 0.05 + 0.02 * (run.seed % 3))
    comparison = Comparison(with_names(6), tmp_path, engine, Recorder())
    statuses = [outcome.status for outcome in comparison.go()]
    assert statuses == ["finished", "failed"] * 6
    assert engine.most == 2
    assert comparison.busy > 85
    assert comparison.worked <= 2 * comparison.wall


# For real -----------------------------------------------------------------------------------------


def options(changes: list[str]) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


BROKEN = """
from rivals.baselines.controls import Finetune

class Broken(Finetune):
    def begin_task(self, task):
        if self.known:
            raise RuntimeError("out of luck\\nand of lines")
        return super().begin_task(task)
"""


def test_a_grid_runs_and_what_is_finished_is_kept(
    tmp_path: Path,
    changes: list[str],
    finished: Path,
    outcome: Callable[[Path], dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rivals.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(BROKEN)
    words = ["compare", "--benchmarks", "digits", *options(changes), "--out", "out", "--json"]
    words += ["--workers", "2", "--methods"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "broken:Broken,twta,finetune"])
    said = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1
    assert [run["status"] for run in said["runs"]] == ["failed", "finished", "finished"]
    assert "RuntimeError: out of luck (broken.py:7)" in said["runs"][0]["reason"]
    ours = tmp_path / "out" / "digits-twta-default-0"
    assert outcome(ours) == outcome(finished)  # bit for bit what `rivals run` does
    assert said["runs"][1]["accuracy"] == pytest.approx(
        json.loads((ours / "results.json").read_text())["summary"]["accuracy"]["task_known"]
    )
    before = {path: path.stat().st_mtime_ns for path in ours.rglob("*")}
    with pytest.raises(SystemExit) as ended:
        main([*words, "twta,finetune"])
    said = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert [run["status"] for run in said["runs"]] == ["kept", "kept"]
    assert before == {path: path.stat().st_mtime_ns for path in ours.rglob("*")}
    with pytest.raises(SystemExit) as ended:
        main([*words[:-3], "--set", "epochs=3", "--methods", "twta"])
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert "holds another run: its epochs is 2, not 3" in printed.err + printed.out


LONG = ["epochs=100"]  # some seconds a task


def of_children(pid: int, word: str) -> list[int]:
    """The processes below `pid` whose command names `word`, from /proc."""
    parents: dict[int, int] = {}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
                if word in (entry / "cmdline").read_bytes().decode(errors="replace"):
                    found.append(int(entry.name))
            except OSError:
                continue
    below = []
    for each in found:
        at = each
        while at in parents and at != pid:
            at = parents[at]
        if at == pid and each != pid:
            below.append(each)
    return below


def wait_for(what: Callable[[], Any], seconds: float = 240.0) -> Any:
    since = time.monotonic()
    while time.monotonic() - since < seconds:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, changes: list[str]) -> Path:
    """The long run when nobody disturbs it."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    prepare(resolve("digits", overrides=parse_overrides([*changes, *LONG])), folder).go()
    return folder


def stored(folder: Path) -> int:
    """How many steps of the present task the checkpoint holds, a little more with every task."""
    try:
        manifest = json.loads((folder / "checkpoint" / "manifest.json").read_text())
    except (OSError, ValueError):
        return 0
    step = manifest["parts"]["common"]["facts"]["position"]["step"]
    return int(10_000 * manifest["done"] + step)


def test_stopped_and_killed_it_goes_on_to_the_same_bits(
    tmp_path: Path,
    changes: list[str],
    spawn: Spawn,
    uninterrupted: Path,
    outcome: Callable[[Path], dict[str, Any]],
) -> None:
    words = ["-m", "rivals.cli.main", "compare", "--benchmarks", "digits", "--seeds", "0,1"]
    words += [*options([*changes, *LONG]), "--out", str(tmp_path), "--save-every", "0.2"]
    words += ["--workers", "2"]
    first, second = (tmp_path / f"digits-twta-default-{seed}" for seed in (0, 1))

    process = spawn(*words)
    wait_for(lambda: stored(first) and stored(second))
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Stopping: the active runs are being saved." in errors
    assert "The same command continues where it stopped." in errors
    assert "2 stopped" in printed
    assert "Traceback" not in errors
    before = stored(first), stored(second)

    process = spawn(*words)
    wait_for(lambda: stored(first) > before[0] and stored(second) > before[1])
    workers = of_children(process.pid, "rivals.experiment.grid.worker")
    assert workers  # two; on a busy machine one may have ended before the kill
    process.kill()
    process.communicate()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))

    process = spawn(*words, "--json")
    printed, errors = process.communicate(timeout=240)
    assert (process.returncode, errors) == (0, "")
    ways = {run["status"] for run in json.loads(printed)["runs"]}
    assert ways <= {"finished", "kept"}
    assert outcome(first) == outcome(uninterrupted)
    assert json.loads((first / "measured.json").read_text())["resumed"] >= 1


def test_a_worker_that_is_killed_is_reported(tmp_path: Path, changes: list[str]) -> None:
    worker = Worker(GridJob(PlannedRun("digits", changes=(*changes, *LONG)), tmp_path))
    heard: list[Event] = []
    while not worker.over:
        heard += worker.listen()
        if len(heard) == 1:
            os.kill(worker.process.pid, signal.SIGKILL)
    assert isinstance(heard[0], Progress)
    assert (heard[0].number, heard[0].tasks, heard[0].task) == (1, 2, "0-1-2-3-4")
    last = heard[-1]
    assert isinstance(last, Ended)
    assert last.status == "failed"
    assert "ended by SIGKILL; perhaps memory ran out" in last.reason


def test_another_process_at_work_is_waited_for(tmp_path: Path, changes: list[str]) -> None:
    run = PlannedRun("digits", "finetune", changes=tuple(changes))
    folder = tmp_path / run.folder
    folder.mkdir()
    lock = FolderLock(folder)

    class Patient(Recorder):
        def started(self, run: PlannedRun) -> None:
            super().started(run)
            if len(self.started_runs) == 2:
                lock.release()

    display, engine = Patient(), Processes(1)
    (outcome,) = Comparison([run], tmp_path, engine, display).go()
    engine.close()
    assert outcome.status == "finished"
    assert len(display.started_runs) >= 2
    assert read_status(run, tmp_path).finished
    assert display.progress[-1].share == 1.0


def test_damaged_results_are_written_anew(
    tmp_path: Path, finished: Path, changes: list[str]
) -> None:
    import shutil

    run = PlannedRun("digits", changes=tuple(changes))
    shutil.copytree(finished, tmp_path / run.folder)
    assert read_status(run, tmp_path).finished
    (tmp_path / run.folder / "results.json").write_text("{")
    assert not read_status(run, tmp_path).finished
    write_json(tmp_path / run.folder / "measured.json", {"total_train_seconds": "long"})
    assert read_status(run, tmp_path).seconds is None


# On validation images -----------------------------------------------------------------------------


def test_a_grid_may_be_measured_on_validation_images(tmp_path: Path) -> None:
    grid = "benchmarks: [digits]\non: validation\ngroups:\n  - {}\n  - {on: test}\n"
    held, tested = from_file(grid_file(tmp_path, grid))
    assert (held.on, tested.on) == ("validation", "test")
    assert held.folder == "digits-twta-default-validation-0"
    assert tested.folder == "digits-twta-default-0"
    assert "--on validation" in held.command(tmp_path)
    with pytest.raises(RivalsError, match="on is 'training'; use test or validation"):
        from_file(grid_file(tmp_path, "benchmarks: [digits]\non: training\n"))


def test_runs_on_validation_images_say_so_and_stay_apart(
    tmp_path: Path, changes: list[str], accepted: Accepted, refused: Refused
) -> None:
    words = ["--benchmarks", "digits", *options(changes), "--out", tmp_path / "out"]
    said = json.loads(accepted("compare", *words, "--on", "validation", "--json"))
    folder = Path(said["runs"][0]["folder"])
    assert said["variants"][0]["on"] == "validation"
    results = json.loads((folder / "results.json").read_text())
    assert results["measured_on"] == "validation"
    assert results["subset"] == "measured on validation images"
    summary = results["summary"]["accuracy"]
    assert results["tasks"][0]["accuracy"] == results["tasks"][0]["validation_accuracy"]
    assert summary["when_learned"] == summary["validation"]
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["data"]["measured_on"] == "validation"

    resume = ["run", "digits", *options(changes), "--out", folder, "--resume"]
    assert "its measured_on is validation, not test" in refused(*resume)
    accepted(*resume, "--on", "validation", "--json")
    assert "no kind of images to measure on named 'train'" in refused(*resume, "--on", "train")
    other = folder.with_name("digits-twta-default-0")
    folder.rename(other)  # as if it were a run on test images
    found = read_status(PlannedRun("digits", changes=tuple(changes), on="validation"), tmp_path)
    assert not found.finished
    with pytest.raises(RivalsError, match="its measured_on is validation, not test"):
        read_status(PlannedRun("digits", changes=tuple(changes)), tmp_path / "out")


def test_a_folder_of_an_older_version_was_measured_on_test_images(
    tmp_path: Path, finished: Path, changes: list[str]
) -> None:
    import shutil

    run = PlannedRun("digits", changes=tuple(changes))
    folder = tmp_path / run.folder
    shutil.copytree(finished, folder)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    del config["data"]["measured_on"]
    del config["sha256"]  # older versions wrote none
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert read_status(run, tmp_path).finished
    settings = resolve("digits", overrides=parse_overrides(changes))
    prepare(settings, folder, resume=True).go()
    with pytest.raises(RivalsError, match="its measured_on is test, not validation"):
        prepare(settings, folder, resume=True, on="validation")


# From Python --------------------------------------------------------------------------------------


def test_python_compares_as_the_command_does(
    tmp_path: Path,
    changes: list[str],
    finished: Path,
    outcome: Callable[[Path], dict[str, Any]],
) -> None:
    settings = dict(change.split("=") for change in changes)
    (found,) = compare("digits", settings=settings, out=tmp_path / "out", workers=1)
    assert (found.status, found.run.seed) == ("finished", 0)
    assert outcome(tmp_path / "out" / found.run.folder) == outcome(finished)
    (again,) = compare(["digits"], ["twta"], [0], settings=settings, out=tmp_path / "out")
    assert again.status == "kept"
    assert (again.accuracy, again.kilobytes) == (found.accuracy, found.kilobytes)
    with pytest.raises(RivalsError, match="seeds must be"):
        compare("digits", seeds=[-1], out=tmp_path)
    with pytest.raises(RivalsError, match="finds a stream of yours as module:name"):
        compare([object()], out=tmp_path)  # type: ignore[list-item]


def test_the_example_of_compare_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(comparison_module)
    assert found.attempted == 4
    assert found.failed == 0


# What a person sees -------------------------------------------------------------------------------


def test_the_screen_shows_how_it_goes(tmp_path: Path) -> None:
    runs = [PlannedRun("digits", seed=seed) for seed in range(3)]
    screen = CompareScreen(runs, tmp_path)
    out = io.StringIO()
    screen.console = Console(
        file=out, force_terminal=True, width=120, markup=False, highlight=False
    )
    screen.messages = screen.console
    screen.interactive = True
    with screen.opened():
        for run in runs[:2]:
            screen.started(run)
        screen.progressed(Progress(runs[0], "0-1", 1, 5, 0.1))
        screen.ended(Outcome(runs[0], "finished", "", 98.76, 12.3))
        screen.ended(Outcome(runs[1], "failed", "no luck."))
        screen.ended(Outcome(runs[2], "kept", "", 97.0, 10.0))
        assert screen.progress is not None
        screen.progress.refresh()
    shown = out.getvalue()
    assert "1/3 digits-twta-default-0: accuracy 98.8 % after 12 s of training" in shown
    assert "2/3 digits-twta-default-1: failed: no luck." in shown
    outcomes = [
        Outcome(runs[0], "finished", "", 98.76, 12.3),
        Outcome(runs[1], "failed", "no luck."),
        Outcome(runs[2], "kept", "", 97.0, 10.0),
    ]
    screen.report(outcomes, 13.0, 97.0, 2)
    shown = out.getvalue()
    assert "3 runs: 1 finished, 1 failed, 1 kept in 13 s; 2 workers, busy 97 % of it." in shown
    assert "alone: rivals run digits --method twta --preset default --seed 1" in shown


def outcomes_of(
    accuracies: dict[str, dict[int, float]], benchmark: str = "digits"
) -> list[Outcome]:
    return [
        Outcome(
            PlannedRun(benchmark, "twta", seed=seed, name=name),
            "kept",
            "",
            value,
            10.0 + seed,
            50.0,
        )
        for name, values in accuracies.items()
        for seed, value in values.items()
    ]


def test_variants_are_compared_with_the_first_seed_by_seed() -> None:
    found = variants(
        [
            *outcomes_of(
                {"plain": {0: 80.0, 1: 90.0}, "wide": {1: 93.0, 0: 82.0}, "odd": {7: 1.0}}
            ),
            *outcomes_of({"plain": {0: 50.0}}, "pmnist"),
            Outcome(PlannedRun("digits", name="broken"), "failed", "no luck"),
        ]
    )
    rows = [each.row() for each in found]
    assert [row["variant"] for row in rows] == ["twta plain", "twta wide", "twta odd", "twta plain"]
    assert [row["difference"] for row in rows] == ["", "+2.5 ± 0.7", "", ""]
    assert rows[0]["accuracy"] == "85.0 ± 7.1"
    assert (rows[1]["seeds"], rows[1]["kilobytes"], rows[1]["seconds"]) == ("0,1", "50", "10")
    assert rows[3]["accuracy"] == "50.0"


def test_the_screen_shows_variants_and_explains_seeds(tmp_path: Path) -> None:
    outcomes = outcomes_of({"plain": {0: 80.0, 1: 90.0}, "wide": {1: 93.0, 0: 82.0}})
    screen, out = CompareScreen([each.run for each in outcomes], tmp_path), io.StringIO()
    screen.console = Console(file=out, width=80, markup=False, highlight=False)
    screen.variants(variants(outcomes)[:1])
    screen.explain_seeds("0-2")
    screen.explain_seeds("0")
    assert out.getvalue() == ""
    screen.variants(variants(outcomes))
    assert "differences to twta plain" in out.getvalue()
    assert "+2.5 ± 0.7" in out.getvalue()
    screen.explain_seeds("2")
    assert "--seeds 2 means seed 2 alone; for 2 seeds write --seeds 0-1." in out.getvalue()


def test_a_benchmark_in_the_place_of_a_file_is_explained(refused: Refused) -> None:
    said = refused("compare", "digits")
    assert "There is no grid file digits" in said
    assert "rivals compare --benchmarks digits" in said
    assert "--benchmarks digits,pmnist" in refused("compare", "digits,pmnist")
    assert "--benchmarks folder:pictures" in refused("compare", "folder:pictures", "--seeds", "0")


# On a cluster -------------------------------------------------------------------------------------


def test_ray_is_asked_for_in_one_sentence(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    words = ("compare", "--benchmarks", "digits", "--engine", "ray", "--out", tmp_path / "out")
    assert "pip install 'rivals[cluster]'" in refused(*words)


def test_a_grid_on_ray_survives_the_loss_of_a_worker(
    tmp_path: Path,
    changes: list[str],
    spawn: Spawn,
    uninterrupted: Path,
    outcome: Callable[[Path], dict[str, Any]],
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'rivals[cluster]'.")
    words = ["-m", "rivals.cli.main", "compare", "--benchmarks", "digits", "--seeds", "0,1"]
    words += [*options([*changes, *LONG]), "--out", str(tmp_path), "--save-every", "0.2"]
    words += ["--engine", "ray", "--workers", "2", "--json"]
    first = tmp_path / "digits-twta-default-0"
    process = spawn(*words)
    wait_for(lambda: stored(first))
    (worker, *_) = [
        pid
        for pid in of_children(process.pid, "rivals.experiment.grid.worker")
        if os.readlink(f"/proc/{pid}/cwd") == str(Path.cwd())
    ]
    stat = Path(f"/proc/{worker}/stat").read_text()
    parent = int(stat.rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    try:
        printed, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert [run["status"] for run in json.loads(printed)["runs"]] == ["finished", "finished"]
    assert outcome(first) == outcome(uninterrupted)
    resumed = [
        json.loads((tmp_path / f"digits-twta-default-{seed}" / "measured.json").read_text())[
            "resumed"
        ]
        for seed in (0, 1)
    ]
    assert sum(resumed) >= 1


def test_grids_are_plain_yaml() -> None:
    for path in (ROOT / "benchmarks").rglob("*.yaml"):
        assert path.read_text().startswith("#"), f"{path.name} should say what it reproduces"
        assert isinstance(yaml.safe_load(path.read_text()), dict)
