"""A run that is stopped or killed at any moment goes on to the same bits."""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forge import Forge
from rivals.errors import Interrupted
from rivals.experiment.run_settings import Settings, resolve
from rivals.experiment.start import prepare
from rivals.learn.method import methods
from toys import FROZEN

Outcome = Callable[[Path], dict[str, Any]]
Spawn = Callable[..., "subprocess.Popen[str]"]

NEVER = 1e9  # seconds: no checkpoint inside a task but on a stop
SMALL = {
    "epochs": 2,
    "tasks": 2,
    "batch_size": 160,
    "architecture": "mlp",
    "widths": "16-16",
    "units": 2,
}
COMPETE = {"share": 0.4}
SPARSE = {"gating": "sparse", "contenders": 2, **COMPETE}
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    **{name: ("digits", name, FROZEN.get(name, {})) for name in methods},
    "twta half": ("digits", "twta", {**SPARSE, "seed": 3}),
    "compete to the end": ("digits", "twta", {**SPARSE, "share": 1.0}),
    "unprotected": ("digits", "twta", {"protect": "none", **SPARSE}),
    "unprotected to the end": ("digits", "twta", {**SPARSE, "protect": "none", "share": 1.0}),
    "relaxed": ("digits", "twta", {"gating": "relaxed", **COMPETE}),
    "per example": ("digits", "twta", {"gating": "relaxed", "per_example": True, **COMPETE}),
    "gated": ("digits", "twta", {"gating": "gated", **COMPETE}),
    "siblings": ("digits", "twta", COMPETE),
    "siblings to the end": ("digits", "twta", {**COMPETE, "share": 1.0}),
    "siblings, unprotected": ("digits", "twta", {"protect": "none", **COMPETE}),
    "siblings, convolutions": (
        "digits", "twta",
        {"architecture": "conv-small", "widths": "8-8-8", "batch_size": 320, **COMPETE},
    ),
    "siblings, residual": (
        "digits", "twta",
        {"architecture": "resnet-small", "widths": "4-4", "batch_size": 640, **COMPETE},
    ),
    "posterior by sgd": ("digits", "twta", {"competition.optimizer": "sgd", **COMPETE}),
    "all seen classes": ("digits", "twta", {"loss_over": "seen", **COMPETE}),
    "gradient of winners": ("digits", "twta", {"keep_gradients": "winner", **SPARSE}),
    "no heritage, decay": ("digits", "twta", {"inherit": "none", "weight_decay": 0.01, **COMPETE}),
    "no norm, linear": ("digits", "twta", {"norm": "none", "activation": "linear", **COMPETE}),
    "convolutions": (
        "digits", "twta",
        {"architecture": "conv-small", "widths": "8-8-8", "batch_size": 320, **SPARSE},
    ),
    "residual": (
        "digits", "twta",
        {"architecture": "resnet-small", "widths": "4-4", "batch_size": 640, **SPARSE},
    ),
    "growing": (
        "digits-permuted", "twta",
        {"tasks": 3, "batch_size": 480, "growth.enabled": True, **COMPETE},
    ),
    "growing at random": ("digits-permuted", "random-ticket", {"tasks": 3, "batch_size": 480}),
    "growing, unlike": (
        "digits-permuted", "twta",
        {
            "tasks": 3, "batch_size": 480, "gating": "relaxed", "loss_over": "seen",
            "inherit": "none",
        },
    ),
    "from an ancestor": ("digits", "twta", {"ancestor": "tiny", "batch_size": 640, "epochs": 1}),
    "full twins": ("digits", "chain", {"network_size": "full"}),
}  # fmt: skip
EVERY_POINT = ("twta", "unprotected")  # each stop by itself, not only in a chain


def settings_of(variant: str) -> Settings:
    benchmark, method, changes = VARIANTS[variant]
    changes = {**SMALL, **changes}
    return resolve(benchmark, method, seed=changes.pop("seed", 0), overrides=changes)


class Bell:
    """Asks to stop at the n-th question; counts the questions, one a step and one a task."""

    def __init__(self, at: int) -> None:
        self.at, self.asked = at, 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked == self.at


def stop_and_go(settings: Settings, folder: Path, stops: list[int]) -> int:
    """Run to the end, stopping at the n-th question of each life; how many stops there were."""
    for number, stop in enumerate([*stops, 0]):
        bell = Bell(stop)
        run = prepare(settings, folder, number > 0, asked_to_stop=bell, save_every=NEVER)
        try:
            run.go()
        except Interrupted:
            continue
        return number
    raise AssertionError("a run that was not asked to stop stopped")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_stopped_after_every_step_ends_as_one_never_stopped(
    variant: str, tmp_path: Path, outcome: Outcome
) -> None:
    settings, bell = settings_of(variant), Bell(0)
    prepare(settings, tmp_path / "whole", asked_to_stop=bell, save_every=NEVER).go()
    whole = outcome(tmp_path / "whole")
    if variant.startswith("growing"):
        tasks = whole["results"]["tasks"]
        assert max(tasks[-1]["units"]) > SMALL["units"], "this variant is here because it grows"

    # After the last task nobody stops any more, so the last question leads to the end.
    assert stop_and_go(settings, tmp_path / "chain", [1] * bell.asked) == bell.asked - 1
    assert outcome(tmp_path / "chain") == whole

    points = range(1, bell.asked + 1)
    some = random.Random(variant).sample(points, 1)
    for point in points if variant in EVERY_POINT else some:
        folder = tmp_path / f"stop{point}"
        assert stop_and_go(settings, folder, [point]) == (point < bell.asked)
        assert outcome(folder) == whole, f"stopped at question {point} of {bell.asked}"


def test_saving_often_changes_nothing(tmp_path: Path, outcome: Outcome) -> None:
    settings = settings_of("unprotected")
    prepare(settings, tmp_path / "often", save_every=0).go()
    prepare(settings, tmp_path / "seldom", save_every=NEVER).go()
    assert outcome(tmp_path / "often") == outcome(tmp_path / "seldom")


def test_resuming_a_finished_run_changes_nothing(
    finished: Path, tmp_path: Path, outcome: Outcome, words: list[str], accepted: Callable[..., str]
) -> None:
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", finished, folder], check=True)
    accepted(*words, "--out", folder, "--resume")
    assert outcome(folder) == outcome(finished)


# Kills in the middle of writing ------------------------------------------------------------------

DRIVER = textwrap.dedent(
    """
    import os, random, signal, stat, sys
    from pathlib import Path

    from rivals.experiment.run_settings import resolve
    from rivals.experiment.start import prepare

    compete = {"share": 0.5} if sys.argv[2] == "twta" else {}  # the first of two steps
    SETTINGS = resolve("digits", sys.argv[2], overrides=compete | {
        "epochs": 1, "tasks": 2, "batch_size": 500, "architecture": "mlp", "widths": "8-8",
        "units": 2,
    })

    def die_at(number):
        '''Let the process kill itself at its n-th change of the disk. Returns the counter.'''
        calls = [0]
        def watched(change):
            def instead(*arguments, **options):
                calls[0] += 1
                if calls[0] == number:
                    if change is fsync and stat.S_ISREG(os.fstat(arguments[0]).st_mode):
                        # A kill comes while a file is half written, too.
                        os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size // 2)
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(*arguments, **options)
            return instead
        fsync = os.fsync
        for name in ("fsync", "replace", "unlink", "mkdir"):
            setattr(os, name, watched(getattr(os, name)))
        return calls

    def live(folder, number):
        '''One life of the run in a process of its own: how it ended, how many calls it made.'''
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                calls = die_at(number)
                resume = (folder / "config.yaml").exists()
                prepare(SETTINGS, folder, resume, save_every=0).go()
                os.write(write, str(calls[0]).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        counted = os.read(read, 100)
        os.close(read)
        _, ended = os.waitpid(child, 0)
        return ended, int(counted or 0)

    out, rng = Path(sys.argv[1]), random.Random(1)
    prepare(SETTINGS, out / "first").go()  # imports whatever a run needs, for all children
    ended, total = live(out / "whole", 0)
    assert (ended, total > 50) == (0, True), (ended, total)
    for count, number in enumerate(range(1, total + 1, int(sys.argv[3])), 1):
        folder = out / str(number)
        ended, _ = live(folder, number)
        assert os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL, (number, ended)
        if count % 4 == 0:
            live(folder, rng.randrange(1, total))  # perhaps killed again
        ended, _ = live(folder, 0)
        assert ended == 0, (number, ended)
    print(total)
    """
)


@pytest.mark.parametrize(
    ("method", "every"),
    [
        ("twta", 3),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("twta", "finetune")),
    ],
)
def test_killed_at_any_change_of_the_disk(
    method: str, every: int, tmp_path: Path, outcome: Outcome, spawn: Spawn
) -> None:
    """At every third change in the tests that always run, at each in the slow ones."""
    driver = spawn("-c", DRIVER, tmp_path / "runs", method, str(every))
    printed, errors = driver.communicate()
    assert (driver.returncode, errors) == (0, "")
    folders = sorted((tmp_path / "runs").iterdir())
    assert len(folders) == len(range(1, int(printed) + 1, every)) + 2
    whole = outcome(tmp_path / "runs" / "whole")
    for folder in folders:
        assert outcome(folder) == whole, f"killed at change {folder.name}"
        assert (folder / "measured.json").exists()


# Real processes, real signals --------------------------------------------------------------------

QUICK = ["digits", "--set", "epochs=2", "--save-every", "0"]
STEPS_A_TASK = 14


def reached(folder: Path) -> int:
    """Steps that the checkpoint in `folder` holds."""
    try:
        manifest = json.loads((folder / "checkpoint" / "manifest.json").read_text())
    except FileNotFoundError:
        return 0
    position = manifest["parts"]["common"]["facts"]["position"]
    inside = position["step"] if position["step"] < position["steps"] else 0
    return int(manifest["done"]) * STEPS_A_TASK + int(inside)


def wait_for(has_ended: Callable[[], Any], folder: Path, steps: int) -> None:
    while not has_ended() and reached(folder) < steps:
        time.sleep(0.001)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    prepare(resolve("digits", overrides={"epochs": 2}), folder).go()
    return folder


def test_killed_again_and_again(
    tmp_path: Path, undisturbed: Path, outcome: Outcome, spawn: Spawn, forge: Forge
) -> None:
    rng, folder, errors = random.Random(7), tmp_path / "run", tmp_path / "errors"
    # During start-up, then at moments spread over the run, the last among the final writes.
    process = spawn("-m", "rivals.cli.main", "run", *QUICK, "--out", folder)
    time.sleep(rng.uniform(0, 3))
    process.kill()
    assert process.communicate()[1] == ""
    killed = process.returncode == -signal.SIGKILL
    for steps in [1, 16, 35, 50, 69, 70]:
        resume = ["--resume"] if (folder / "config.yaml").exists() else []
        child = forge.start("run", *QUICK, "--out", folder, *resume, errors=errors)
        wait_for(child.ended, folder, steps)
        time.sleep(rng.uniform(0, 0.02))
        child.signal(signal.SIGKILL)
        killed += child.wait() == -signal.SIGKILL
        assert errors.read_text() == ""
    assert killed >= 4
    assert forge.start("run", *QUICK, "--out", folder, "--resume", errors=errors).wait() == 0
    assert errors.read_text() == ""
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_and_told_how_to_go_on(
    number: signal.Signals, tmp_path: Path, undisturbed: Path, outcome: Outcome, spawn: Spawn
) -> None:
    folder = Path("a folder [/b] [bold]") / ":car: 'x'"  # relative, and hard to print and to quote
    process = spawn("run", *QUICK, "--out", folder, command="rivals", cwd=tmp_path)
    wait_for(lambda: process.poll() is not None, tmp_path / folder, 20)
    process.send_signal(number)
    printed, told = process.communicate()
    assert (process.returncode, printed) == (130, ""), told
    assert 20 <= reached(tmp_path / folder) < 5 * STEPS_A_TASK
    sentence, command = told.splitlines()
    assert sentence == "Stopped and saved. Go on with:"
    program, *arguments = shlex.split(command)
    again = spawn(*arguments, command=program, cwd=tmp_path)
    printed, errors = again.communicate()
    assert (again.returncode, errors) == (0, "")
    assert "accuracy, task known" in printed
    assert str(folder / "results.json") in printed
    assert outcome(tmp_path / folder) == outcome(undisturbed)
