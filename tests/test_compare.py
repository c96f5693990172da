"""`rivals compare`: what is run, in which order, and what happens when something goes wrong."""

from __future__ import annotations

import io
import json
import os
import random
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
from rivals.experiment.grid.comparison import Comparison, Outcome
from rivals.experiment.grid.engine import Ended, Event, GridJob, Progress
from rivals.experiment.grid.expected import Expected, longest_first
from rivals.experiment.grid.grid_file import Planned, from_file, from_words
from rivals.experiment.grid.process_engine import Processes, Worker
from rivals.experiment.grid.run_status import look
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.io.files import write_json
from rivals.io.locks import FolderLock

Accepted = Callable[..., str]
Refused = Callable[..., str]
Spawn = Callable[..., Any]
ROOT = Path(__file__).parent.parent


class Nobody:
    """An onlooker that only remembers."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.progress: list[Progress] = []

    def began(self, run: Planned) -> None:
        self.begun.append(run.folder)

    def goes_on(self, progress: Progress) -> None:
        self.progress.append(progress)

    def ended(self, outcome: Outcome) -> None: ...
    def stopping(self) -> None: ...


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
        ("a: [\n", "not valid YAML at line 2"),
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
    assert "is no folder" in refused(*base, "--data", tmp_path / "nowhere")
    assert "Nothing is named to run" in refused("compare")
    assert "(No such file or directory)" in refused("compare", tmp_path / "none.yaml")
    grid = grid_file(tmp_path, "benchmarks: [digits]\n")
    assert "leave out --methods" in refused("compare", grid, "--methods", "twta")
    (tmp_path / "file").write_text("")
    assert "is a file" in refused("compare", grid, "--out", tmp_path / "file")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_the_folder_of_a_run_is_not_taken(finished: Path, refused: Refused) -> None:
    said = refused("compare", "--benchmarks", "digits", "--out", finished)
    assert "is the folder of a run" in said


QUESTIONS = yaml.safe_load((ROOT / "benchmarks" / "research" / "questions.yaml").read_text())


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_questions_for_research_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "research")
    question = QUESTIONS[name]
    for variant in question["variants"].values():
        given = {**question.get("set", {}), **variant}
        method = given.pop("method", "twta")
        for seed in question["seeds"]:
            resolve(question["benchmark"], method, question["preset"], seed, given)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "benchmarks").glob("*.yaml")), ids=lambda path: path.stem
)
def test_our_own_grids_are_valid(path: Path) -> None:
    assert from_file(path)


# In which order -----------------------------------------------------------------------------------


def planned(benchmarks: int, methods: int, seeds: int) -> list[Planned]:
    return [
        Planned(f"b{b}", f"m{m}", seed=s)
        for s in range(seeds)
        for b in range(benchmarks)
        for m in range(methods)
    ]


def simulate(runs: list[Planned], lasts: dict[Planned, float], workers: int) -> float:
    """The share of time that workers are busy when runs start in our order."""
    expected, waiting = Expected(), list(runs)
    running: dict[Planned, float] = {}
    clock = 0.0
    while waiting or running:
        while waiting and len(running) < workers:
            run = longest_first(waiting, expected)[0]
            waiting.remove(run)
            running[run] = clock + lasts[run]
        done = min(running, key=lambda run: running[run])
        clock = running.pop(done)
        expected.learn(done, lasts[done])
    return sum(lasts.values()) / (workers * clock)


@pytest.mark.parametrize("shape", [(2, 12, 1), (5, 5, 3), (1, 17, 2)], ids=str)
def test_workers_are_busy_nine_tenths_of_the_time(shape: tuple[int, int, int]) -> None:
    for trial in range(5):
        dice = random.Random(trial)
        of_benchmark = [dice.uniform(20, 200) for _ in range(shape[0])]
        of_method = [dice.choice([1, 1, 1.3, 2, 4]) for _ in range(shape[1])]
        runs = planned(*shape)
        lasts = {
            run: of_benchmark[int(run.benchmark[1:])]
            * of_method[int(run.method[1:])]
            * dice.uniform(0.9, 1.1)
            for run in runs
        }
        assert simulate(runs, lasts, 2) >= 0.9, (shape, trial)


def test_what_is_known_is_used() -> None:
    expected = Expected()
    runs = planned(2, 2, 2)
    assert longest_first(runs, expected)[:4] == runs[:4]  # one of each kind, to learn from
    for run, seconds in zip(runs[:3], (10.0, 40.0, 20.0), strict=True):
        expected.learn(run, seconds)
    assert expected.seconds(runs[3]) == pytest.approx(80, rel=0.01)  # 20 · 40 / 10
    assert [run.kind[:2] for run in longest_first(runs[4:], expected)] == [
        ("b1", "m1"), ("b0", "m1"), ("b1", "m0"), ("b0", "m0"),
    ]  # fmt: skip


class Sleepers:
    """An engine whose runs do nothing but last."""

    def __init__(self, lasts: Callable[[Planned], float], workers: int = 2) -> None:
        self.workers, self.lasts = workers, lasts
        self.running: dict[Planned, float] = {}
        self.most = 0

    def start(self, job: GridJob) -> None:
        self.running[job.run] = time.monotonic() + self.lasts(job.run)
        self.most = max(self.most, len(self.running))

    def events(self, patience: float) -> list[Event]:
        time.sleep(
            max(0.0, min([patience, *(e - time.monotonic() for e in self.running.values())]))
        )
        over = [run for run, end in self.running.items() if end <= time.monotonic()]
        for run in over:
            del self.running[run]
        return [
            Ended(run, "failed", "no luck") if run.method == "m1" else Ended(run, "finished")
            for run in over
        ]

    def stop(self) -> None: ...
    def close(self) -> None: ...


def with_names(count: int) -> list[Planned]:
    return [
        Planned("digits", method, seed=seed) for seed in range(count) for method in ("twta", "m1")
    ]


def test_a_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    engine = Sleepers(lambda run: 0.05 + 0.02 * (run.seed % 3))
    comparison = Comparison(with_names(6), tmp_path, engine, Nobody())
    hows = [outcome.how for outcome in comparison.go()]
    assert hows == ["finished", "failed"] * 6
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
    assert [run["how"] for run in said["runs"]] == ["failed", "finished", "finished"]
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
    assert [run["how"] for run in said["runs"]] == ["kept", "kept"]
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
    assert "Stopping: the runs at work are being saved." in errors
    assert "The same command goes on where it stopped." in errors
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
    ways = {run["how"] for run in json.loads(printed)["runs"]}
    assert ways <= {"finished", "kept"}
    assert outcome(first) == outcome(uninterrupted)
    assert json.loads((first / "measured.json").read_text())["resumed"] >= 1


def test_a_worker_that_is_killed_is_reported(tmp_path: Path, changes: list[str]) -> None:
    worker = Worker(GridJob(Planned("digits", changes=(*changes, *LONG)), tmp_path))
    heard: list[Event] = []
    while not worker.over:
        heard += worker.listen()
        if len(heard) == 1:
            os.kill(worker.process.pid, signal.SIGKILL)
    assert isinstance(heard[0], Progress)
    assert (heard[0].number, heard[0].tasks, heard[0].task) == (1, 2, "0-1-2-3-4")
    last = heard[-1]
    assert isinstance(last, Ended)
    assert last.how == "failed"
    assert "ended by SIGKILL; perhaps memory ran out" in last.reason


def test_another_process_at_work_is_waited_for(tmp_path: Path, changes: list[str]) -> None:
    run = Planned("digits", "finetune", changes=tuple(changes))
    folder = tmp_path / run.folder
    folder.mkdir()
    lock = FolderLock(folder)

    class Patient(Nobody):
        def began(self, run: Planned) -> None:
            super().began(run)
            if len(self.begun) == 2:
                lock.release()

    onlooker, engine = Patient(), Processes(1)
    (outcome,) = Comparison([run], tmp_path, engine, onlooker).go()
    engine.close()
    assert outcome.how == "finished"
    assert len(onlooker.begun) >= 2
    assert look(run, tmp_path).finished
    assert onlooker.progress[-1].share == 1.0


def test_damaged_results_are_written_anew(
    tmp_path: Path, finished: Path, changes: list[str]
) -> None:
    import shutil

    run = Planned("digits", changes=tuple(changes))
    shutil.copytree(finished, tmp_path / run.folder)
    assert look(run, tmp_path).finished
    (tmp_path / run.folder / "results.json").write_text("{")
    assert not look(run, tmp_path).finished
    write_json(tmp_path / run.folder / "measured.json", {"total_train_seconds": "long"})
    assert look(run, tmp_path).seconds is None


# What a person sees -------------------------------------------------------------------------------


def test_the_screen_shows_how_it_goes(tmp_path: Path) -> None:
    runs = [Planned("digits", seed=seed) for seed in range(3)]
    screen = CompareScreen(runs, tmp_path)
    out = io.StringIO()
    screen.console = Console(
        file=out, force_terminal=True, width=120, markup=False, highlight=False
    )
    screen.messages = screen.console
    screen.lively = True
    with screen.opened():
        for run in runs[:2]:
            screen.began(run)
        screen.goes_on(Progress(runs[0], "0-1", 1, 5, 0.1))
        screen.ended(Outcome(runs[0], "finished", "", 98.76, 12.3))
        screen.ended(Outcome(runs[1], "failed", "no luck."))
        screen.ended(Outcome(runs[2], "kept", "", 97.0, 10.0))
        assert screen.progress is not None
        screen.progress.refresh()
    shown = out.getvalue()
    assert "1/3 digits-twta-default-0: 98.8 % right after 12 s of training" in shown
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
    assert [run["how"] for run in json.loads(printed)["runs"]] == ["finished", "finished"]
    assert outcome(first) == outcome(uninterrupted)
    resumed = [
        json.loads((tmp_path / f"digits-twta-default-{seed}" / "measured.json").read_text())[
            "resumed"
        ]
        for seed in (0, 1)
    ]
    assert sum(resumed) >= 1


def test_grids_are_plain_yaml() -> None:
    for path in (ROOT / "benchmarks").glob("*.yaml"):
        assert path.read_text().startswith("#"), f"{path.name} should say what it reproduces"
        assert isinstance(yaml.safe_load(path.read_text()), dict)
