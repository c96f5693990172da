"""Kills at many points, full disks, two writers: the model is the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forge import Child, Forge
from rivals.io.locks import LOCK_NAME
from rivals.learn import twta
from rivals.model import defaults
from rivals.model.folder import ModelFolder
from rivals.model.model import Model
from rivals.nn.network_plan import NetworkSettings
from teaching import WORDS, folder, marks, teach

Refused = Callable[..., str]
Tree = Callable[[Path], dict[str, str]]
KILLS = 8  # at random moments, beside those at chosen ones


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tasks that share all edges, and the pictures of a third. Only to be copied."""
    place = tmp_path_factory.mktemp("safe")
    narrow = NetworkSettings(architecture="mlp", widths=(100, 100), units=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults, "plan", lambda *_: (narrow, (1, 8, 8)))
        patch.setattr(twta, "GROWTH_ROUNDS", 0)
        for name, classes in (("a", (0, 1)), ("b", (2, 3))):
            teach(folder(place / name, classes, 10), place / "model")
    folder(place / "c", (4, 5), 10)
    return place


def commands(taught: Path, model: Path) -> dict[str, list[str]]:
    return {
        "learn": ["learn", str(taught / "c"), "--model", str(model), "--epochs", "2"],
        "again": ["learn", str(taught / "b"), "--model", str(model), "--epochs", "2", "--again"],
        "drop": ["drop", "a", "--model", str(model)],
    }


def half_written(model: Path) -> bool:
    return any(path.suffix == ".part" for path in model.rglob("*"))


def one_more(model: Path) -> bool:
    return len(list((model / "tasks").iterdir())) > 2


def described_anew(model: Path) -> Callable[[Path], bool]:
    before = (model / "model.json").stat().st_mtime_ns
    return lambda model: (model / "model.json").stat().st_mtime_ns != before


def strike(child: Child, model: Path, moment: Callable[[Path], bool] | float) -> None:
    """Kill at a moment: after some seconds, or as soon as something is seen in the folder."""
    if isinstance(moment, float):
        time.sleep(moment)
    else:
        while not child.ended():
            with contextlib.suppress(OSError):
                if moment(model):
                    break
            time.sleep(0.0002)
    child.signal(signal.SIGKILL)
    child.wait()


def ready_tasks(model: Path) -> tuple[str, ...]:
    """The tasks that a reader, with everything loaded, can answer for."""
    reader = Model(model)
    reader.check()
    return reader.predictor().tasks


@pytest.mark.parametrize("verb", ["learn", "again", "drop"])
def test_a_kill_leaves_the_old_model_or_the_new_one(
    forge: Forge, taught: Path, tmp_path: Path, verb: str
) -> None:
    model = tmp_path / "model"
    words = commands(taught, model)[verb]
    shutil.copytree(taught / "model", model)
    old = marks(model)
    began = time.monotonic()
    assert forge.start(*words).wait() == 0
    whole = time.monotonic() - began
    new = marks(model)
    assert new != old or verb == "again"
    chance, found = random.Random(verb), []
    moments: list[Callable[[Path], bool] | float | None] = [half_written, one_more, None]
    moments += [chance.uniform(0, 1.1 * whole) for _ in range(KILLS)]
    for moment in moments:
        shutil.rmtree(model)
        shutil.copytree(taught / "model", model)
        strike(forge.start(*words), model, moment or described_anew(model))
        left = marks(model)
        assert left in (old, new)
        found.append(left == new)
        names = ModelFolder.open(model).description.files()
        assert names <= {path.name for path in (model / "tasks").iterdir()}
    # What is left by a kill is in nobody's way: the same command goes through, or says it is done.
    assert forge.start(*words).wait() == (2 if found[-1] and verb != "again" else 0)
    files = {path.name for path in (model / "tasks").iterdir()}
    assert files == ModelFolder.open(model).description.files()


def test_a_kill_of_the_first_lesson(forge: Forge, taught: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    words = ["learn", taught / "c", "--model", model, *WORDS]
    for moment in (0.02, 0.2, lambda _: model.exists(), half_written):
        strike(forge.start(*words), model, moment)
        if (model / "model.json").exists():  # it was quicker than who watched: then it is whole
            assert list(marks(model)) == ["c"]
            shutil.rmtree(model)
    assert forge.start(*words).wait() == 0
    assert [task.name for task in ModelFolder.open(model).tasks] == ["c"]


def is_locked(model: Path) -> bool:
    """The lock file is there only while somebody writes. Taking the lock to find out would refuse
    a writer who begins just then."""
    return (model / LOCK_NAME).exists()


def wait_for_lock(model: Path) -> None:
    deadline = time.monotonic() + 60
    while not is_locked(model) and time.monotonic() < deadline:
        time.sleep(0.05)


def test_one_writer_at_a_time(
    forge: Forge, taught: Path, tmp_path: Path, refused: Refused, accepted: Callable[..., str]
) -> None:
    model = tmp_path / "model"
    shutil.copytree(taught / "model", model)
    before = marks(model)
    busy = forge.start("learn", taught / "c", "--model", model, "--epochs", "100000")
    wait_for_lock(model)
    said = refused("drop", "nobody", "--model", model)
    assert "Another process is writing to the model" in said
    assert "Another process" in refused("learn", taught / "c", "--model", model)
    assert ready_tasks(model) == ("a", "b")  # who only reads need not wait
    busy.signal(signal.SIGKILL)
    busy.wait()
    assert marks(model) == before
    accepted("drop", "b", "--model", model)  # the lock went with the process


def test_readers_do_not_mind_a_writer(forge: Forge, taught: Path, tmp_path: Path) -> None:
    """Files vanish that were described a moment ago: then the model is read anew."""
    model, seen = tmp_path / "model", set()
    shutil.copytree(taught / "model", model)
    todo = [words for _ in range(4) for words in (
        ["drop", "a", "--model", model],
        ["learn", taught / "a", "--model", model, "--epochs", "1"],
    )]  # fmt: skip
    for words in todo:
        child = forge.start(*words)
        while not child.ended():
            seen.add(ready_tasks(model))
        assert child.wait() == 0
    assert seen <= {("a", "b"), ("b",), ("b", "a")}
    assert len(seen) > 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop(forge: Forge, taught: Path, tmp_path: Path, tree: Tree, number: int) -> None:
    model = tmp_path / "model"
    shutil.copytree(taught / "model", model)
    before = tree(model)
    child = forge.start("learn", taught / "c", "--model", model, "--epochs", "100000")
    wait_for_lock(model)
    time.sleep(1.0)
    child.signal(number)
    assert child.wait() == 130
    assert tree(model) == before


@pytest.mark.parametrize("verb", ["learn", "again", "drop"])
def test_files_that_may_not_grow(
    forge: Forge, taught: Path, tmp_path: Path, tree: Tree, verb: str
) -> None:
    model = tmp_path / "model"
    shutil.copytree(taught / "model", model)
    before = tree(model)
    limits = (0, 500, 10_000) if verb != "drop" else (0, 500)
    for limit in limits:
        assert forge.start(*commands(taught, model)[verb], limit=limit).wait() == 2
        assert tree(model) == before
    assert forge.start("learn", taught / "c", "--model", tmp_path / "new", *WORDS, limit=0).wait()
    assert not (tmp_path / "new").exists()


def test_a_full_disk(forge: Forge, taught: Path, tmp_path: Path, tree: Tree) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    files = [path for path in (taught / "model").rglob("*") if path.is_file()]
    room = f"size={4 * sum(1 + path.stat().st_size // 4096 for path in files) + 8}k"
    mounted = shutil.which("mount") and os.getuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", room, "none", disk], capture_output=True, check=False
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("a small disk can be made by root alone")
    try:
        model = disk / "model"
        shutil.copytree(taught / "model", model)
        before = tree(model)
        for verb in ("learn", "again"):
            assert forge.start(*commands(taught, model)[verb]).wait() == 2
            assert tree(model) == before
        assert len(ready_tasks(model)) == 2
        assert forge.start(*commands(taught, model)["drop"]).wait() == 0  # it has space of its own
        assert ready_tasks(model) == ("b",)
    finally:
        subprocess.run(["umount", disk], check=True)
