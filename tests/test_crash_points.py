"""Stopped before every write, sync, rename, unlink and mkdir: the old state or the new one.

python -m pytest tests/test_crash_points.py -m slow -s     every point, counted

Each verb runs once while `crash_points` records what the disk would hold at every moment, killed or
without power. Every such disk is opened; from some of each kind, in the slow tests from all of
them, the same command is given again and must end in the same bits. Then the disk is full from a
point on, or the memory is used up at a point: one sentence, and the old state.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from crash_points import (
    FULL_DISK,
    NO_MEMORY,
    TAKES_ROOM,
    Crash,
    Recorder,
    crashes,
    read_tree,
    recorded,
    some_of_each_kind,
    write_tree,
)
from rivals.cli.main import main
from rivals.deploy import output_path
from rivals.deploy.export_format import write_card
from rivals.edge.artefact_files import read_artefact
from rivals.edge.card import sidecar
from rivals.edge.command import main as edge_command
from rivals.errors import RivalsError
from rivals.experiment.checkpoint import CheckpointFolder
from rivals.experiment.grid import comparison
from rivals.experiment.grid.engine import Ended, GridJob
from rivals.experiment.grid.worker import ProgressWriter, run_job
from rivals.experiment.result_file import read_results
from rivals.experiment.run_folder import RunFolder
from rivals.io.checksum import BLANK
from rivals.model import manifest
from rivals.model.learning import learn as lesson
from rivals.streams.task import Task
from rivals.tickets.ticket import Ticket
from rivals.web.collection import Collection, NewPicture
from rivals.web.jobs import Jobs
from served import shape
from teaching import WORDS, folder, marks, teach
from toys import contents

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc/self/fd"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib kept its own functions of os"),
]
TINY = ["tasks=2", "epochs=1", "batch_size=160", "architecture=mlp", "widths=8-8", "units=2"]
SET = [word for change in TINY for word in ("--set", change)]
KINDS = {"open", "write", "sync", "rename"}  # that every verb has
State = Any  # of a folder: two are equal if nobody can tell them apart


def in_words(command: Callable[[list[str]], int | None], *words: str | Path) -> tuple[int, str]:
    """Run a command line here; its status and what it wrote to stderr."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            return command([str(word) for word in words]) or 0, errors.getvalue()
    except SystemExit as end:
        return int(end.code or 0), errors.getvalue()
    except Exception:
        return 1, traceback.format_exc()


def rivals(*words: str | Path) -> tuple[int, str]:
    return in_words(main, *words)


@pytest.fixture(scope="module")
def ended() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# Verbs -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verb:
    """A command: where it begins, what it does to a place, and what can be seen there."""

    start: Path | None  # copied to the place; None: nothing is there
    act: Callable[[Path], tuple[int, str]]
    state: Callable[[Path], State]
    between: bool = False  # states between the old and the new one are meant to be: a run
    adds: bool = False  # done twice it does more than done once

    def begin(self, place: Path) -> Path:
        shutil.rmtree(place, ignore_errors=True)
        if self.start is None:
            place.mkdir(parents=True)
        else:
            shutil.copytree(self.start, place)
        return place


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of two tasks, beside the pictures of three."""
    place = tmp_path_factory.mktemp("taught")
    for name, classes in (("a", (0, 1)), ("b", (2, 3))):
        teach(folder(place / name, classes, 6), place / "one" / "model", epochs=1)
    folder(place / "c", (4, 5), 6)
    folder(place / "a2", (0, 1), 6, first=20)  # more of a
    status, told = rivals("ancestor", "make", place / "one" / "model", "--out", place / "known")
    assert status == 0, told
    model = place / "descended" / "model"
    lesson(place / "a", model, ancestor="tiny", size=16, new=0)  # in closed form
    lesson(place / "b", model, new=0.5, epochs=1)  # and with units of its own
    return place


def model_state(place: Path) -> State:
    """The bits of every task; nothing where there is no model yet."""
    if not manifest.exists(place / "model"):
        return None
    try:
        return tuple(sorted(marks(place / "model").items()))
    except RivalsError as error:
        return f"refused: {error}"


def run_state(place: Path) -> State:
    """All that a run has, but for the clock; a sentence where it cannot be read."""
    runs = sorted(each.parent for each in place.glob("**/config.yaml"))
    return tuple(one_run_state(run) for run in runs)


def one_run_state(run: Path) -> State:
    found = RunFolder(run)
    try:
        found.read_config()
        tasks = []
        if found.results.exists():
            tasks = [task["name"] for task in read_results(found.results)["tasks"]]
        for task in tasks:
            Ticket.load(found.ticket(task))
        if found.checkpoints.exists():
            CheckpointFolder(run / "checkpoint").load()
    except RivalsError as error:
        return f"refused: {error}"
    clock = ("measured.json", ".lock")  # and files of former checkpoints, which nobody reads
    whole = {
        name: mark
        for name, mark in contents(run).items()
        if name not in clock and not name.startswith("checkpoint/") and ".part" not in name
    }
    state = {}
    if found.checkpoints.exists():
        state = json.loads(found.checkpoints.manifest.read_text())
        state = {key: state[key] for key in ("done", "parts", "results")}
    return json.dumps([run.name, whole, state], sort_keys=True)


def run_again(place: Path) -> tuple[int, str]:
    resume = ["--resume"] if (place / "run" / "config.yaml").exists() else []
    return rivals("run", "digits", *SET, "--out", place / "run", *resume)


class HereEngine:
    """Carries out the runs of a comparison one after the other in this process."""

    workers = 1

    def __init__(self) -> None:
        self.ended: list[Ended] = []

    def start(self, job: GridJob) -> None:
        with open("/dev/null", "wb") as nowhere:
            writer = ProgressWriter(nowhere.fileno())
            self.ended.append(Ended(job.run, *run_job(job.to_dict(), writer, threading.Event())))

    def events(self, timeout: float) -> list[Ended]:
        found, self.ended = self.ended, []
        return found

    def stop(self) -> None: ...

    def close(self) -> None: ...


def compare(place: Path) -> tuple[int, str]:
    words = ("--benchmarks", "digits", "--methods", "finetune", "--seeds", "0")
    return rivals("compare", *words, *SET, "--out", place / "runs")


def file_state(*names: str) -> Callable[[Path], State]:
    """The content of exported files and folders; what is hidden is nobody's."""

    def read(place: Path) -> State:
        found = {
            name: data for name, data in read_tree(place).items() if name.partition("/")[0] in names
        }
        return tuple(sorted(found.items(), key=lambda item: item[0]))

    return read


@pytest.fixture(scope="module")
def verbs(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verb]:
    one, held = taught / "one", tmp_path_factory.mktemp("exported")

    def learn(task: str, *more: str) -> Callable[[Path], tuple[int, str]]:
        words = ("--epochs", "1", *more)
        return lambda place: rivals("learn", taught / task, "--model", place / "model", *words)

    def export(name: str, task: str, *more: str) -> Callable[[Path], tuple[int, str]]:
        words = ("export", "--model", one / "model", "--task", task, *more)
        return lambda place: rivals(*words, place / name)

    def without_torch(verb: str, task: str, *more: str) -> Callable[[Path], tuple[int, str]]:
        words = (verb, taught / task, *more)
        return lambda place: in_words(edge_command, *words, "--model", place / "model")

    known = ("--ancestor", str(taught / "known"))
    make = ("ancestor", "make", one / "model", "--task")
    shutil.copytree(taught / "known", held / "known" / "known")
    found = {
        "learn, the first task": Verb(None, learn("c", *WORDS[:-2]), model_state),
        "learn, from an ancestor": Verb(None, learn("c", *known), model_state),
        "ancestor make": Verb(
            None, lambda place: rivals(*make, "a", "--out", place / "known"), file_state("known")
        ),
        "ancestor make over": Verb(
            held / "known",
            lambda place: rivals(*make, "a", "--out", place / "known"),
            file_state("known"),
        ),
        "learn": Verb(one, learn("c"), model_state),
        "learn --again": Verb(one, learn("b", "--again"), model_state, adds=True),
        "drop": Verb(
            one, lambda place: rivals("drop", "a", "--model", place / "model"), model_state
        ),
        "learn in closed form": Verb(taught / "descended", learn("c", "--new", "0"), model_state),
        "drop what descended": Verb(
            taught / "descended",
            lambda place: rivals("drop", "a", "--model", place / "model"),
            model_state,
        ),
        "edge learn, the first task": Verb(
            None, without_torch("learn", "c", "--ancestor", "tiny", "--size", "16"), model_state
        ),
        "edge learn --again": Verb(
            taught / "descended",
            without_torch("learn", "a2", "--name", "a", "--again"),
            model_state,
            adds=True,
        ),
        "edge learn --anew": Verb(
            taught / "descended",
            without_torch("learn", "c", "--name", "b", "--anew"),
            model_state,
        ),
        "edge drop": Verb(
            taught / "descended",
            lambda place: in_words(edge_command, "drop", "b", "--model", place / "model"),
            model_state,
        ),
        "run": Verb(None, run_again, run_state, between=True),
        "compare": Verb(None, compare, run_state, between=True),
    }
    for name, words in {"t.onnx": ["--to", "onnx"], "t": ["--to", "c"]}.items():
        (held / name).mkdir()
        status, told = export(name, "a", *words)(held / name)
        assert status == 0, told
        state = file_state(name, f"{name}.json")
        kind = words[1]
        found[f"export to {kind}"] = Verb(None, export(name, "b", *words), state)
        found[f"export over {kind}"] = Verb(held / name, export(name, "b", *words), state)
    return found


VERBS = (
    "learn, the first task", "learn, from an ancestor", "learn", "learn --again", "drop",
    "learn in closed form", "drop what descended", "edge learn, the first task",
    "edge learn --again", "edge learn --anew", "edge drop", "run", "compare",
    "export to onnx", "export over onnx", "export to c", "export over c", "ancestor make",
    "ancestor make over",
)  # fmt: skip


SLOW = {  # functions of what they are given, which write nothing here: they are computed once
    "rivals.deploy.to_onnx": "ticket_graph",
    "rivals.deploy.c": "generate",
    "rivals.edge.runtime_c": "build",
    "rivals.model.advice": "advise",
}
MADE: dict[Any, Any] = {}


def deciding(value: Any) -> Any:
    """What decides about advice; how a learner is fitted follows from the features beside it."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().numpy().tobytes()
    if isinstance(value, Task):
        parts = (value.train, value.validation)
        return value.classes, *(deciding(x) for part in parts for x in (part.images, part.labels))
    return callable(value) or value


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Comparisons run in this process; what is slow and writes nothing is computed once."""
    monkeypatch.setattr(comparison, "make_engine", lambda *_: HereEngine())
    held = tmp_path_factory.getbasetemp() / "compiled"
    held.mkdir(exist_ok=True)

    def once(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def made(first: Any, *rest: Any, **more: Any) -> Any:
            if name == "build":  # of C
                key: Any = (name, first.content)
                if key not in MADE:
                    MADE[key] = shutil.copy(real(first, *rest, **more), held / str(len(MADE)))
                return MADE[key]
            if name == "advise":
                given = tuple((word, deciding(value)) for word, value in sorted(more.items()))
                key = (name, deciding(first), *map(deciding, rest), given)
            else:
                key = (name, first.fingerprint(), rest, tuple(more.items()))
            if key not in MADE:
                MADE[key] = real(first, *rest, **more)
            return copy.deepcopy(MADE[key])

        return made

    for module, name in SLOW.items():
        real = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(f"{module}.{name}", once(name, real))
    monkeypatch.setattr("rivals.deploy.c.measure", lambda folder: {})  # other machines' compilers


# Crashes -----------------------------------------------------------------------------------------


def one_pass(verb: Verb, place: Path) -> tuple[State, State, Recorder]:
    """The command, undisturbed and watched; the states before and after it."""
    verb.begin(place)
    before = verb.state(place)
    with recorded(place) as recorder:
        status, told = verb.act(place)
        assert status == 0, told
        kept = recorder.disks()["lost"]
    after = verb.state(place)
    assert after != before
    recorder.points[-1].disks["kept"] = kept
    return before, after, recorder


# What an undisturbed pass of a verb has shown: the states around it, and its points.
PASSES: dict[str, tuple[State, State, list[tuple[str, str]]]] = {}


def watched_once(name: str, verb: Verb, place: Path) -> tuple[State, State, list[tuple[str, str]]]:
    if name not in PASSES:
        before, after, recorder = one_pass(verb, place)
        PASSES[name] = before, after, [(point.kind, point.path) for point in recorder.points]
    return PASSES[name]


def left_open(place: Path) -> list[str]:
    """Files below `place` that this process still has: a lock would be held with them."""
    for again in (False, True):
        if again:  # only then, since it takes long: what waits for the collector is no mistake
            gc.collect()
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        found = [name for name in found if name.startswith(f"{place.resolve()}/")]
        if not found:
            break
    return found


def listing(wrong: list[str], of: str) -> str:
    more = [f"and {len(wrong) - 20} more"] if len(wrong) > 20 else []
    return "\n".join([f"{len(wrong)} problems with {of}:", *wrong[:20], *more])


def tell(name: str, recorder: Recorder, disks: list[Crash], repeated: int) -> None:
    kinds = Counter(point.kind for point in recorder.points)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(
        f"{name}: {len(recorder.points)} points ({counted}), {len(disks)} different disks, all "
        f"opened, {repeated} repeated"
    )


def crash(name: str, verb: Verb, tmp_path: Path, ended: int, whole: bool) -> None:
    before, after, recorder = one_pass(verb, tmp_path / "pass")
    PASSES[name] = before, after, [(point.kind, point.path) for point in recorder.points]
    assert {point.kind for point in recorder.points} >= KINDS
    kept = recorder.points[-1].disks.pop("kept")
    done = verb.state(write_tree(kept, tmp_path / "kept", ended))
    wrong = [] if done == after else ["a power cut after the end undoes what was reported as done"]
    disks = crashes(recorder.points)
    for each in disks:
        found = verb.state(write_tree(each.tree, tmp_path / "disk", ended))
        good = "refused" not in str(found) if verb.between else found in (before, after)
        if not good:
            wrong.append(f"{each} leaves neither the old state nor the new one: {str(found)[:200]}")
    chosen = disks if whole else some_of_each_kind(disks)
    for each in chosen:
        place = write_tree(each.tree, tmp_path / "disk", ended)
        first = verb.state(place)
        status, told = verb.act(place)
        is_done = status == 2 and first == after and not verb.between
        if status != 0 and not is_done:
            wrong.append(f"{each}: the same command fails: {told[-300:]}")
        elif verb.state(place) != after and not (verb.adds and first == after):
            wrong.append(f"{each}: the same command ends in other bits")
        elif any(".part" in left for left in read_tree(place)):
            wrong.append(f"{each}: the same command leaves half-written files behind")
    tell(name, recorder, disks, len(chosen))
    assert not wrong, listing(wrong, f"{len(disks)} disks")


@pytest.mark.parametrize("name", VERBS)
def test_a_crash_leaves_the_old_state_or_the_new_one(
    name: str, verbs: dict[str, Verb], tmp_path: Path, ended: int
) -> None:
    crash(name, verbs[name], tmp_path, ended, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_every_crash_leaves_the_old_state_or_the_new_one(
    name: str, verbs: dict[str, Verb], tmp_path: Path, ended: int
) -> None:
    crash(name, verbs[name], tmp_path, ended, whole=True)


@pytest.mark.parametrize("before", [b"", b"old"])
def test_an_artefact_and_its_card_are_replaced_together(
    before: bytes, tmp_path: Path, ended: int
) -> None:
    """Two files cannot be renamed at once; whichever card fits the artefact counts."""
    facts = {
        "rivals": 2, "task": "t", "classes": ["a", "b"], "input_shape": [1, 8, 8],
        "preprocessing": {"scale": 16, "mean": [], "std": []}, "raw_input": True, "sha256": BLANK,
    }  # fmt: skip

    def write(place: Path, content: bytes, task: str) -> None:
        with output_path.place(place / "t.tflite") as path:
            path.write_bytes(content)
            write_card(sidecar(path), {**facts, "task": task}, content)

    def state(place: Path) -> State:
        try:
            found = read_artefact(place / "t.tflite")
        except RivalsError as error:
            return str(error)[-40:] if (place / "t.tflite").exists() else None
        return found.content, found.card.tasks

    place = tmp_path / "pass"
    place.mkdir()
    if before:
        write(place, before, "old")
    old = state(place)
    with recorded(place) as recorder:
        write(place, b"new", "new")
    new = state(place)
    assert new == ((b"new",), ("new",))
    disks = crashes(recorder.points)
    assert len(disks) > 5
    for each in disks:
        disk = write_tree(each.tree, tmp_path / "disk", ended)
        assert state(disk) in (old, new), each
        write(disk, b"third", "third")  # what was left half-done does not disturb the next
        assert state(disk) == ((b"third",), ("third",)), each
        assert sorted(read_tree(disk)) == ["t.tflite", "t.tflite.json"], each


# A full disk, and no memory ----------------------------------------------------------------------


def fail(name: str, verb: Verb, tmp_path: Path, whole: bool) -> None:
    """From each point on the disk is full, or at it the memory is used up."""
    before, after, points = watched_once(name, verb, tmp_path / "pass")
    chosen = [number for number, (kind, _) in enumerate(points) if kind in TAKES_ROOM]
    if not whole:
        last = {points[number][0]: number for number in chosen}
        chosen = sorted(last.values())
    wrong, repeated = [], set()
    for how in (FULL_DISK, NO_MEMORY):
        for number in chosen:
            place = verb.begin(tmp_path / "place")
            with recorded(place, how, number):
                status, told = verb.act(place)
            where = f"{how} at point {number}: {points[number][0]} {points[number][1]}"
            begins = told.startswith(("rivals: ", "rivals-edge: "))
            sentence = status == 2 and begins and told.count("\n") == 1
            # A comparison goes on with its other runs, and lists those that failed.
            listed = name == "compare" and status == 1 and "Traceback" not in told
            if not (sentence or listed or status == 0):
                wrong.append(f"{where}: no sentence, status {status}: {told[-300:]}")
            found = verb.state(place)
            good = "refused" not in str(found) if verb.between else found in (before, after)
            if not good:
                wrong.append(f"{where}: neither the old state nor the new one: {str(found)[:200]}")
            if status == 0 and found != after:
                wrong.append(f"{where}: reported as done, and is not")
            if any(".part" in left for left in read_tree(place)):
                wrong.append(f"{where}: half-written files are left behind")
            if held := left_open(place):
                wrong.append(f"{where}: still open: {held}")
            disk = hash(frozenset(read_tree(place).items()))
            if found == before and disk not in repeated:  # from the same disk it would be the same
                repeated.add(disk)
                status, told = verb.act(place)
                if status != 0 or verb.state(place) != after:
                    wrong.append(
                        f"{where}: the same command, with room again, fails: {told[-300:]}"
                    )
    print(f"{name}: {2 * len(chosen)} failures of {2 * len(points)} possible ones")
    assert not wrong, listing(wrong, f"{2 * len(chosen)} failures")


@pytest.mark.parametrize("name", VERBS)
def test_a_full_disk_and_no_memory(name: str, verbs: dict[str, Verb], tmp_path: Path) -> None:
    fail(name, verbs[name], tmp_path, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_every_full_disk_and_no_memory(name: str, verbs: dict[str, Verb], tmp_path: Path) -> None:
    fail(name, verbs[name], tmp_path, whole=True)


# The server's collection and its trainings -------------------------------------------------------


def collected(place: Path) -> State:
    """What a server that starts now would show."""
    try:
        found = Collection(place / "pictures")
        pictures = found.listing()
        for task in pictures:
            for each in task["classes"]:
                each["newest"].sort()  # otherwise by their age, which is not kept here
                for picture in each["newest"]:
                    found.thumbnail(task["task"], each["name"], picture)
        jobs = Jobs(place / "trainings", lambda job: [], lambda job: False).listing()
    except RivalsError as error:
        return f"refused: {error}"
    return json.dumps([pictures, jobs], sort_keys=True)


def steps() -> Iterator[tuple[str, Callable[[Collection, Jobs], Any]]]:
    yield "a class", lambda found, jobs: found.add_class("shapes", "circle")
    yield "a second class", lambda found, jobs: found.add_class("shapes", "cross")
    for number in range(2):
        data = shape("circle", number)
        yield "a picture", lambda found, jobs, data=data: found.add("shapes", "circle", data, "x")
    yield "rename a class", lambda found, jobs: found.rename("shapes", "circle", "ring")
    yield "rename a task", lambda found, jobs: found.rename("shapes", None, "forms")
    yield (
        "move a picture",
        lambda found, jobs: found.move("forms", "ring", max(found.names("forms", "ring")), "cross"),
    )
    both = [NewPicture("whole", kind, shape(kind, 5), "x") for kind in ("circle", "cross")]
    yield "a whole task", lambda found, jobs: found.add_tasks(both)
    yield "a training", lambda found, jobs: jobs.add("forms")
    yield "cancel it", lambda found, jobs: jobs.cancel(1)
    yield "forget it", lambda found, jobs: jobs.forget("forms")
    yield (
        "remove a picture",
        lambda found, jobs: found.remove("forms", "ring", min(found.names("forms", "ring"))),
    )
    yield "remove a class", lambda found, jobs: found.remove("forms", "ring")
    yield "remove a task", lambda found, jobs: found.remove("forms")


def test_a_crash_of_the_server(tmp_path: Path, ended: int) -> None:
    """Each request of a page: done, or not done; and what was answered stays done."""
    place, wrong, points, disks = tmp_path / "collected", [], 0, 0
    place.mkdir()
    collected(place)
    for name, act in steps():
        before = collected(place)
        with recorded(place) as recorder:
            found = Collection(place / "pictures")
            jobs = Jobs(place / "trainings", lambda job: [], lambda job: False)
            act(found, jobs)
            kept = recorder.disks()["lost"]
        after = collected(place)
        assert before != after, name
        states = crashes(recorder.points)
        points, disks = points + len(recorder.points), disks + len(states)
        for each in states:
            left = collected(write_tree(each.tree, tmp_path / "disk", ended))
            if left not in (before, after):
                wrong.append(f"{name}: {each} leaves neither state: {left[:300]}")
        if collected(write_tree(kept, tmp_path / "disk", ended)) != after:
            wrong.append(f"{name}: a power cut after the answer undoes it")
        for how in (FULL_DISK, NO_MEMORY):
            for number, point in enumerate(recorder.points):
                if point.kind in TAKES_ROOM:
                    write_tree(recorder.points[0].disks["killed"], tmp_path / "disk", ended)
                    wrong += failing(name, act, tmp_path / "disk", how, number, before, after)
    print(f"collection: {points} points, {disks} different disks, all opened")
    assert not wrong, listing(wrong, f"{disks} disks")


def failing(
    name: str, act: Callable[[Collection, Jobs], Any], place: Path, how: str, number: int,
    before: State, after: State,
) -> list[str]:  # fmt: skip
    wrong = []
    where = f"{name}, {how} at point {number}"
    with recorded(place, how, number):
        try:
            found = Collection(place / "pictures")
            act(found, Jobs(place / "trainings", lambda job: [], lambda job: False))
        except RivalsError as error:
            if "\n" in str(error):
                wrong.append(f"{where}: more than a sentence: {error}")
        except MemoryError:
            pass  # the server answers 500, and goes on
        except Exception:
            wrong.append(f"{where}: {traceback.format_exc()[-400:]}")
    if collected(place) not in (before, after):
        wrong.append(f"{where}: neither state: {collected(place)[:300]}")
    return wrong
