"""What a foreign model folder may hold: links, pipes and sizes are refused in one sentence."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from rivals.deploy.exporting import export_from
from rivals.errors import RivalsError
from rivals.io.files import digest
from rivals.learn import twta
from rivals.model import defaults, manifest, network_size, spare_space, task_file
from rivals.model.dropping import drop
from rivals.model.folder import ModelFolder
from rivals.model.history import ModelHistory
from rivals.model.manifest import checksum, file_name
from rivals.model.model import Model
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from teaching import WORDS, folder, marks, teach

Refused = Callable[..., str]
Accepted = Callable[..., str]
Tree = Callable[[Path], dict[str, str]]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four tasks in a narrow network that may not grow: they share edges."""
    place = tmp_path_factory.mktemp("taught")
    narrow = NetworkSettings(architecture="mlp", widths=(64, 64), units=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults, "plan", lambda *_: (narrow, (1, 8, 8)))
        patch.setattr(twta, "GROWTH_ROUNDS", 0)
        for name, classes in (("a", (0, 1)), ("b", (2, 3)), ("c", (4, 5)), ("d", (6, 7))):
            teach(folder(place / name, classes, 10), place / "model", epochs=1)
    return place


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> Path:
    shutil.copytree(taught / "model", tmp_path / "model")
    return tmp_path / "model"


def put(model: Path, value: dict[str, Any]) -> None:
    """A model.json whose checksum fits."""
    model.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**value, "sha256": checksum(value)})
    (model / "model.json").write_text(text)


def content(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / "model.json").read_text())
    return found


def verbs(taught: Path, model: Path) -> list[list[str | Path]]:
    """Every verb that opens a model."""
    picture = next((taught / "a" / "digit 0").iterdir())
    return [
        ["info", model],
        ["predict", picture, "--model", model],
        ["test", taught / "a", "--model", model],
        ["export", "--model", model, "--task", "a", model.parent / "a.onnx"],
        ["drop", "a", "--model", model],
        ["learn", taught / "a", "--model", model, "--again"],
    ]


# Links, pipes, devices ---------------------------------------------------------------------------


def link_tasks(model: Path, other: Path) -> None:
    shutil.rmtree(model / "tasks")
    (model / "tasks").symlink_to(other / "tasks")


def link_task(model: Path, other: Path) -> None:
    file = next((model / "tasks").iterdir())
    file.unlink()
    file.symlink_to(other / "tasks" / file.name)


def link_description(model: Path, other: Path) -> None:
    (model / "model.json").unlink()
    (model / "model.json").symlink_to(other / "model.json")


def link_in_a_loop(model: Path, other: Path) -> None:
    (model / "model.json").unlink()
    (model / "model.json").symlink_to("model.json")


@pytest.mark.parametrize("attack", [link_tasks, link_task, link_description, link_in_a_loop])
def test_links_are_refused_by_every_verb(
    taught: Path, model: Path, tmp_path: Path, refused: Refused, tree: Tree,
    attack: Callable[[Path, Path], None],
) -> None:  # fmt: skip
    other = tmp_path / "other"
    shutil.copytree(taught / "model", other)
    (other / "tasks" / f"{'0' * 16}.safetensors").write_bytes(b"of another model")
    before = tree(other)
    attack(model, other)
    for words in verbs(taught, model):
        assert "it is a link" in refused(*words), words
    assert tree(other) == before


def test_the_sweep_follows_no_link(taught: Path, tmp_path: Path, refused: Refused) -> None:
    """A folder without model.json whose tasks are those of another model."""
    victim = tmp_path / "victim"
    shutil.copytree(taught / "model", victim)
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "tasks").symlink_to(victim / "tasks")
    assert "it is a link" in refused("learn", taught / "a", "--model", trap, *WORDS)
    assert marks(victim) == marks(taught / "model")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("place", ["model.json", "tasks", "task file"])
def test_pipes_do_not_hang(taught: Path, model: Path, refused: Refused, place: str) -> None:
    path = next((model / "tasks").iterdir()) if place == "task file" else model / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.mkfifo(path)
    for words in verbs(taught, model):
        assert refused(*words), words


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/full"])
def test_devices_are_not_read(model: Path, refused: Refused, target: str) -> None:
    (model / "model.json").unlink()
    (model / "model.json").symlink_to(target)
    assert "it is a link" in refused("info", model)


def test_a_model_that_the_user_reaches_by_a_link(taught: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(model)
    (model / "tasks" / f"{'0' * 16}.safetensors").write_bytes(b"left by a kill")
    drop(tmp_path / "link", "a")
    assert list(marks(model)) == ["b", "c", "d"]
    assert {path.name for path in (model / "tasks").iterdir()} == ModelFolder.open(
        model
    ).description.files()


def test_looping_links_as_a_model(taught: Path, tmp_path: Path, refused: Refused) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for words in verbs(taught, loop):
        assert refused(*words), words
    assert refused("check", loop)


def test_an_export_writes_nothing_through_a_link(model: Path, tmp_path: Path) -> None:
    """What an export has shown was once written to a folder `tickets`, wherever it led."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    mine = tmp_path / "mine" / "a"
    mine.mkdir(parents=True)
    (mine / "exports.json").write_text("{}")
    (model / "tickets").symlink_to(tmp_path / "mine")
    export_from(model, tmp_path / "a.onnx", task="a")
    assert (mine / "exports.json").read_text() == "{}"
    assert [path.name for path in mine.iterdir()] == ["exports.json"]


# Sizes -------------------------------------------------------------------------------------------

LARGE = {
    "format": 2, "seed": 0, "input_shape": [3, 64, 64], "units": [], "tasks": [], "moved": None,
    "history": [],
}  # fmt: skip
MEASURE = """
import sys, time
from pathlib import Path
from rivals.errors import RivalsError
from rivals.io.process_memory import peak_memory
from rivals.model.folder import ModelFolder
import rivals.model.model
before = peak_memory()
for name in sys.argv[1:]:
    began = time.process_time()  # others may keep the machine busy
    try:
        ModelFolder.open(name).room()
        said = "opened"
    except RivalsError as error:
        said = str(error)
    print(Path(name).name, (peak_memory() - before) // 10**6, time.process_time() - began, said)
"""


def with_header_of(model: Path, size: int) -> None:
    """A file of the first task whose header has so many bytes, and a description that fits."""
    described = content(model)
    text = b'{"x":[' + b"[]," * (size // 3) + b"[]]}"
    data = struct.pack("<Q", len(text)) + text
    sha256 = digest(data)
    (model / "tasks" / file_name(sha256)).write_bytes(data)
    described["tasks"][0] |= {
        "file": file_name(sha256), "sha256": sha256, "bytes": len(data),
    }  # fmt: skip
    put(model, described)


def test_memory_is_not_taken_before_sizes_are_checked(taught: Path, tmp_path: Path) -> None:
    """280 bytes took 4.9 GB; lists 2.2 GB; a header 1.8 GB; names of classes 75 s."""
    for name, widths in (("conv-small", [8192] * 8), ("mlp", [8192] * 8), ("resnet-small", [8192])):
        put(tmp_path / name, {**LARGE, "network": {"name": name, "widths": widths, "units": 4}})
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "model.json").write_bytes(b'{"format": [' + b"[]," * 33_000_000 + b"[]]}")
    (tmp_path / "values").mkdir()
    (tmp_path / "values" / "model.json").write_bytes(b'{"format": [' + b"0," * 15_000_000 + b"0]}")
    for name, size in (("header", 60 * 10**6), ("short-header", 10**6)):
        shutil.copytree(taught / "model", tmp_path / name)
        with_header_of(tmp_path / name, size)
    described, names = content(taught / "model"), [f"class {n:04} of many" for n in range(1000)]
    tasks = [
        {**described["tasks"][0], "name": f"task {n}", "classes": names, "sha256": f"{n:016x}" * 4,
         "file": f"{n:016x}.safetensors"} for n in range(300)
    ]  # fmt: skip
    history = list(ModelHistory.begin(["0" * 64] * 300).lines)
    put(tmp_path / "classes", {**described, "tasks": tasks, "history": history})
    shutil.copytree(taught / "model", tmp_path / "units")
    put(tmp_path / "units", {**described, "units": [40_000, 40_000]})
    shutil.copytree(taught / "model", tmp_path / "more-units")
    put(tmp_path / "more-units", {**described, "units": [40_001, 8]})
    attacks = [path for path in sorted(tmp_path.iterdir()) if path.is_dir()]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, attacks)], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(attacks) == 10
    for line in lines:
        name, megabytes, seconds, said = line.split(" ", 3)
        assert int(megabytes) < 350, line
        assert float(seconds) < 5, line
        assert said != "opened" or name == "units", line


def test_the_size_of_a_network_is_that_of_its_ticket() -> None:
    for name in ("conv-small", "lenet", "mlp", "resnet-small"):
        settings, sizes = NetworkSettings(architecture=name), network_size.SizeBuilder(8)
        body = NetworkPlan(settings, (3, 32, 32)).body(sizes)
        body(network_size.Activations(torch.zeros(1, 3, 32, 32), "", network_size.Wiring("")))
        network = NetworkPlan(settings, (3, 32, 32)).rivals(Seed(0))
        weights = 0
        for layer in network.layers():
            columns = layer.source.blocks if layer.source else layer.weight.columns
            weights += layer.rivals.blocks * columns * layer.weight.taps
        assert sizes.weights == weights


def described_by(taught: Path, count: int) -> manifest.Description:
    """A model of many tasks."""
    found = manifest.read(taught / "model")
    tasks = tuple(
        replace(
            found.tasks[0], name=f"task {n}", sha256=f"{n:016x}" * 4, file=f"{n:016x}.safetensors",
            classes=tuple(f"class {k}" for k in range(10)),
            inherited_from=tuple(f"task {k}" for k in reversed(range(n))),
        )
        for n in range(count)
    )  # fmt: skip
    return replace(found, tasks=tasks, history=ModelHistory.begin(["0" * 64] * count))


def test_a_thousand_tasks_open_in_a_second(taught: Path, tmp_path: Path) -> None:
    large = described_by(taught, 1000)
    (tmp_path / "model.json").write_bytes(large.to_bytes())
    began = time.process_time()
    found = manifest.read(tmp_path)
    assert time.process_time() - began < 1
    assert found == large
    assert len((tmp_path / "model.json").read_bytes()) < 1000 * 1000  # not quadratic


def test_format_1_with_many_tasks(taught: Path, tmp_path: Path) -> None:
    """Its lists of ancestors are read, and their nearest one is enough."""
    large = described_by(taught, 300)
    old = json.loads(large.to_bytes())
    old["format"] = 1
    del old["moved"], old["history"]
    for entry, task in zip(old["tasks"], large.tasks, strict=True):
        entry["inherited_from"] = list(task.inherited_from)
    put(tmp_path, old)
    assert manifest.read(tmp_path) == replace(large, history=None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "a\x1b[31mb"}, "tasks/0/name"),
        ({"name": "a\nb"}, "tasks/0/name"),
        ({"name": "\ud800"}, "is not as it should be"),
        ({"classes": ["one", "one"]}, "names a class of a task twice"),
        ({"classes": ["one"]}, "tasks/0/classes"),
        ({"images": -1}, "tasks/0/images"),
        ({"images": 1.0}, "tasks/0/images"),
        ({"images": True}, "tasks/0/images"),
        ({"inherited_from": ["nobody"]}, "an ancestor that is not there"),
        ({"inherited_from": ["b"]}, "an ancestor that is not there"),
        ({"more": 1}, "tasks/0/more"),
        ({"file": f"{'0' * 16}.safetensors"}, "by another checksum than its own"),
    ],
)
def test_a_description_is_checked(model: Path, change: dict[str, Any], said: str) -> None:
    described = content(model)
    described["tasks"][0] |= change
    put(model, described)
    with pytest.raises(RivalsError, match=said):
        ModelFolder.open(model)


def test_one_file_for_two_tasks_is_refused(model: Path) -> None:
    """A hundred tasks that share a file would take a hundred times its memory."""
    described = content(model)
    same = {key: described["tasks"][0][key] for key in ("file", "sha256", "bytes")}
    described["tasks"][1] |= same
    put(model, described)
    with pytest.raises(RivalsError, match="names a file twice"):
        ModelFolder.open(model)


# Moved or removed meanwhile ----------------------------------------------------------------------


class Meanwhile:
    """Does something to the folder in the middle of a lesson."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act, self.done = act, False

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "begins" and not self.done:
            self.done = True
            self.act()


@pytest.mark.parametrize("change", ["moved", "removed", "exchanged"])
def test_a_folder_that_is_moved_during_a_lesson(
    taught: Path, model: Path, tmp_path: Path, tree: Tree, change: str
) -> None:
    before = tree(model)
    other = tmp_path / "other"
    shutil.copytree(taught / "model", other)
    drop(other, "a")
    theirs = tree(other)

    def act() -> None:
        shutil.rmtree(model) if change == "removed" else model.rename(tmp_path / "moved")
        if change == "exchanged":
            other.rename(model)

    with pytest.raises(RivalsError, match="was moved, removed or exchanged meanwhile"):
        Model(model).learn(folder(tmp_path / "e", (8, 9), 6), epochs=1, listener=Meanwhile(act))
    if change == "exchanged":
        assert tree(model) == theirs
    else:
        assert not model.exists()
    if change != "removed":
        left = {k: v for k, v in tree(tmp_path / "moved").items() if k != ".lock"}
        assert left == before


def test_a_new_model_that_is_removed_during_its_first_lesson(tmp_path: Path) -> None:
    model = tmp_path / "model"
    with pytest.raises(RivalsError, match="was moved, removed or exchanged meanwhile"):
        teach(
            folder(tmp_path / "d", (6, 7), 6), model, epochs=1,
            listener=Meanwhile(lambda: shutil.rmtree(model)),
        )  # fmt: skip
    assert not model.exists()


# A full disk, and edges that moved ---------------------------------------------------------------


def test_a_drop_changes_no_file_of_another_task(model: Path, tmp_path: Path) -> None:
    before, files = marks(model), {t.name: t.file for t in ModelFolder.open(model).tasks}
    moved = False
    for task in ("a", "b"):
        drop(model, task)
        opened = ModelFolder.open(model)
        moved |= opened.description.moved is not None
        assert {t.name: t.file for t in opened.tasks}.items() <= files.items()
        assert marks(model).items() <= before.items()
        assert {path.name for path in (model / "tasks").iterdir()} == opened.description.files()
    assert moved
    Model(model).learn(folder(tmp_path / "e", (8, 9), 6), epochs=1)
    assert ModelFolder.open(model).description.moved is None  # the lesson wrote them where they are
    assert marks(model)["c"] == before["c"]


@pytest.mark.parametrize("entry", ["owners", "cells", "values"])
def test_a_damaged_file_of_moved_edges(model: Path, entry: str) -> None:
    drop(model, "a")
    described = content(model)
    tensors = safetensors.torch.load_file(model / "tasks" / described["moved"]["file"])
    name = next(key for key in tensors if key.endswith(".owners") and len(tensors[key]))
    name = name.replace("owners", entry)
    tensors[name] = tensors[name] + 3000 if entry == "owners" else tensors[name][:-1]
    file, sha256, data = task_file.encode(tensors)
    (model / "tasks" / file).write_bytes(data)
    put(model, {**described, "moved": {"file": file, "sha256": sha256, "bytes": len(data)}})
    with pytest.raises(RivalsError, match="is damaged"):
        marks(model)


@pytest.fixture
def disk(tmp_path: Path) -> Any:
    """A disk of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = shutil.which("mount") and os.getuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True, check=False
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("a small disk can be made by root alone")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(disk: Path) -> None:
    """Take all that is free."""
    with contextlib.suppress(OSError), (disk / "full").open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0


def test_a_drop_needs_no_free_space(taught: Path, disk: Path) -> None:
    model = disk / "model"
    shutil.copytree(taught / "model", model)
    before = marks(model)
    fill(disk)
    drop(model, "a")
    opened = ModelFolder.open(model)
    assert opened.description.moved is not None
    assert marks(model) == {name: mark for name, mark in before.items() if name != "a"}
    for task in ("c", "b", "d"):
        fill(disk)  # somebody takes what was freed
        drop(model, task)
        assert marks(model).items() <= before.items()
    assert ModelFolder.open(model).tasks == []


def test_without_spare_space_the_model_stays(taught: Path, disk: Path, tree: Tree) -> None:
    model = disk / "model"
    shutil.copytree(taught / "model", model)
    spare_space.give_back(model)
    fill(disk)
    before = tree(model)
    with pytest.raises(RivalsError, match="No space left"):
        drop(model, "a")
    assert tree(model) == before


def test_the_spare_space_is_real(model: Path) -> None:
    found = (model / spare_space.NAME).stat()
    assert found.st_blocks * 512 >= found.st_size > 4096


def test_the_same_pictures_under_another_name_are_refused(tmp_path: Path) -> None:
    """In closed form their files would be one, and dropping one task would take the other's."""
    images = np.random.default_rng(0).integers(0, 60, (10, 32, 32, 3), dtype=np.uint8)
    images[5:, 22:30, 22:30, 0] = 255
    data, place = (images, ["plain"] * 5 + ["red"] * 5), tmp_path / "model"
    Model(place).learn(data, "two", ancestor="tiny")
    before = marks(place)
    with pytest.raises(RivalsError, match="'three' would be 'two' again, the same in every bit"):
        Model(place).learn(data, "three")
    assert marks(place) == before
    Model(place).drop("two")
    Model(place).learn(data, "three")
