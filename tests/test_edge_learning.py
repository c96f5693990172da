"""Learning without torch: the choices, the files and the answers of the full package."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import rivals
from rivals.ancestors.feature_network import feature_network
from rivals.ancestors.shipped_file import SHIPPED
from rivals.edge import EdgeModel
from rivals.edge.command import main
from rivals.edge.direct_inputs import direct_widths, edge_grid, small_pixels
from rivals.edge.frozen_ancestor import shipped_ancestor
from rivals.errors import RivalsError
from rivals.model import manifest
from rivals.model.checking import check
from rivals.nn.activations import Activations, EdgeGrid, SmallPixels
from rivals.nn.selection import Wiring
from rivals.seeds import Seed
from rivals.streams import picture_source
from teaching import folder, teach

APART = 1e-5  # confidences of the same folder, by both
TINY: dict[str, Any] = {"ancestor": "tiny", "size": 32}
SMALLEST: dict[str, Any] = {"ancestor": "tiny", "size": 16}  # for tasks that are trained


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of digits: a, b and c to learn from, more of a, held ones."""
    place = tmp_path_factory.mktemp("pictures")
    for name, classes in (("a", (0, 1, 2)), ("b", (3, 4, 5)), ("c", (6, 7, 8, 9))):
        folder(place / name, classes, 12)
        folder(place / "held" / name, classes, 5, first=60)
    folder(place / "more", (0, 1, 2), 12, first=20)
    return place


@pytest.fixture(scope="module")
def both(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same lessons by both: the folders of the model without torch, and of that with it."""
    place = tmp_path_factory.mktemp("both")
    edge, full = EdgeModel(place / "edge"), rivals.Model(place / "full")
    for name in ("a", "b"):
        edge.learn(pictures / name, **TINY)
        full.learn(pictures / name, **TINY)
    return edge.path, full.path


@pytest.fixture(scope="module")
def mixed(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a task of each kind: units, units that use those, closed form, edges."""
    path = tmp_path_factory.mktemp("mixed") / "model"
    model = rivals.Model(path)
    model.learn(pictures / "a", new=1, epochs=1, **SMALLEST)
    model.learn(pictures / "b", new=0.3, epochs=1)
    EdgeModel(path).learn(pictures / "c")
    model.learn(pictures / "more", new=0.5, epochs=1)
    return path


def held(pictures: Path) -> list[str]:
    return sorted(str(path) for path in (pictures / "held").glob("*/*/*.png"))


def assert_same_answers(path: Path, pictures: Path, apart: float = APART) -> None:
    some = held(pictures)
    mine = EdgeModel(path).predict(some, reject=0.1)
    theirs = rivals.Model(path).predict(some, reject=0.1)
    for one, other in zip(mine, theirs, strict=True):
        assert (one.task, one.label, one.rejected) == (other.task, other.label, other.rejected)
        assert one.confidence == pytest.approx(other.confidence, abs=apart)
    assert len({answer.task for answer in mine}) > 1 or len(rivals.Model(path).tasks) == 1


def assert_whole(path: Path) -> None:
    report = check(path)
    assert report.whole, report.parts
    assert not [part for part in report.parts if part.state == "note"], report.parts


# The same mathematics -----------------------------------------------------------------------------


def test_draws_are_those_of_torch() -> None:
    for value in (0, 7, 2**62 + 11):
        generator, mine = Seed(value).torch(), Seed(value).permutations()
        for count in (1, 2, 30, 0, 500):
            expected = torch.randperm(count, generator=generator).numpy()
            np.testing.assert_array_equal(mine(count), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", SHIPPED)
def test_features_are_those_of_the_network(name: str, channels: int) -> None:
    """Of sides that pooling halves evenly, and of others."""
    body = shipped_ancestor(name).body(channels)
    for side in (48, 37):
        images = np.random.default_rng(side).normal(size=(3, channels, side, side))
        images = images.astype(np.float32)
        network = feature_network(name, (channels, side, side), side).network
        with torch.no_grad():
            expected = network(torch.from_numpy(images)).numpy()
        np.testing.assert_allclose(body(images), expected, atol=1e-4 if channels == 1 else 1e-5)
        assert body(images).shape == (3, shipped_ancestor(name).widths[-1])


@pytest.mark.parametrize("side", [3, 16, 48, 61])
def test_direct_inputs_are_those_of_torch(side: int) -> None:
    images = np.random.default_rng(side).normal(size=(10, 3, side, side)).astype(np.float32)
    for mine, layer in ((edge_grid, EdgeGrid(side, side)), (small_pixels, SmallPixels(side, side))):
        flow = Activations(torch.from_numpy(images), "", Wiring(""))
        expected = layer(flow).values.numpy()
        np.testing.assert_allclose(mine(images), expected, atol=1e-5)
        assert expected.shape[1] in direct_widths((3, side, side))


# The same lessons ---------------------------------------------------------------------------------


def test_a_lesson_is_stored_as_by_the_full_package(both: tuple[Path, Path]) -> None:
    """Means and covariances to a rounding of 16 bits, choices and facts exactly."""
    edge, full = (manifest.read(path) for path in both)
    assert (edge.network, edge.widths, edge.input_shape, edge.units, edge.ancestor, edge.seed) == (
        full.network, full.widths, full.input_shape, full.units, full.ancestor, full.seed,
    )  # fmt: skip
    for mine, other in zip(edge.tasks, full.tasks, strict=True):
        facts = {"seconds": 0, "file": 0, "sha256": 0, "accuracy": 0}
        assert {**mine.to_dict(), **facts} == {**other.to_dict(), **facts}
        assert mine.accuracy == pytest.approx(other.accuracy, abs=1e-4)
        arrays, expected = (
            safetensors.numpy.load((path / "tasks" / each.file).read_bytes())
            for path, each in zip(both, (mine, other), strict=True)
        )
        assert arrays.keys() == expected.keys()
        for name, values in arrays.items():
            assert (values.dtype, values.shape) == (expected[name].dtype, expected[name].shape)
            size = np.abs(expected[name]).max()
            np.testing.assert_allclose(values, expected[name], rtol=2e-3, atol=1e-3 * size)
        if mine.name == "a":
            assert arrays["kept.prior"] == expected["kept.prior"]
            assert arrays["kept.scale"] == expected["kept.scale"]
        else:  # of digits, edges say more than the ancestor
            assert arrays["direct.weight"].shape == (3, 512, 1)


def test_both_packages_read_both_models(both: tuple[Path, Path], pictures: Path) -> None:
    for path in both:
        assert_whole(path)
        assert_same_answers(path, pictures)


def test_accuracy_by_both(both: tuple[Path, Path], pictures: Path) -> None:
    found = EdgeModel(both[0]).test(pictures / "held" / "a", "a")
    expected = rivals.Model(both[0]).test(pictures / "held" / "a", "a")
    assert found["accuracy"] == pytest.approx(expected.accuracy)
    assert found["images"] == 15
    assert list(found["classes"]) == ["digit 0", "digit 1", "digit 2"]


def test_more_pictures_are_added(pictures: Path, both: tuple[Path, Path], tmp_path: Path) -> None:
    for name, path in zip(("edge", "full"), both, strict=True):
        shutil.copytree(path, tmp_path / name)
    edge, full = EdgeModel(tmp_path / "edge"), rivals.Model(tmp_path / "full")
    mine, theirs = (m.learn(pictures / "more", "a", again=True) for m in (edge, full))
    assert (mine.kept, mine.facts.images, mine.facts.refined) == (
        theirs.kept, theirs.facts.images, theirs.facts.refined,
    )  # fmt: skip
    assert mine.before == pytest.approx(theirs.before, abs=1e-4)
    assert mine.facts.accuracy == pytest.approx(theirs.accuracy, abs=1e-4)
    assert_whole(edge.path)
    assert_same_answers(edge.path, pictures)


def test_a_task_is_replaced(pictures: Path, both: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(both[0], tmp_path / "model")
    model = EdgeModel(tmp_path / "model")
    model.learn(pictures / "c", "a", anew=True)
    assert [task.name for task in model.tasks] == ["b", "a"]
    assert model.tasks[1].classes == ("digit 6", "digit 7", "digit 8", "digit 9")
    assert_whole(model.path)


# Tasks that were trained --------------------------------------------------------------------------


def test_tasks_with_units_answer(mixed: Path, pictures: Path) -> None:
    assert_same_answers(mixed, pictures, apart=1e-4)  # deeper sums, other order
    for name in ("a", "b", "c", "more"):
        mine = EdgeModel(mixed).predict(held(pictures), task=name)
        theirs = rivals.Model(mixed).predict(held(pictures), task=name)
        assert [a.label for a in mine] == [a.label for a in theirs]


@pytest.mark.parametrize("order", [("a", "c", "b"), ("more", "b", "a", "c")])
def test_dropping_is_the_same_to_the_bit(
    order: tuple[str, ...], mixed: Path, pictures: Path, tmp_path: Path
) -> None:
    """Also of edges that move from a dropped task to others, and on from these."""
    mine, theirs = (Path(shutil.copytree(mixed, tmp_path / name)) for name in ("edge", "full"))
    for name in order:
        dropped = EdgeModel(mine).drop(name)
        expected = rivals.Model(theirs).drop(name)
        assert (dropped.task, dropped.heirs, dropped.freed) == (
            expected.task, expected.heirs, expected.freed,
        )  # fmt: skip
        assert manifest.read(mine) == manifest.read(theirs)
        assert stored(mine) == stored(theirs)
    assert_whole(mine)
    if EdgeModel(mine).tasks:
        EdgeModel(mine).learn(pictures / "held" / "a", "new")
        assert_whole(mine)
        assert_same_answers(mine, pictures, apart=1e-4)


def stored(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in (path / "tasks").iterdir()}


def test_forgetting_leaves_what_was_before(pictures: Path, tmp_path: Path) -> None:
    """The files of a model that learned and forgot are those of one that never learned it."""
    model = EdgeModel(tmp_path / "model")
    model.learn(pictures / "a", **TINY)
    before = stored(model.path)
    model.learn(pictures / "b")
    model.drop("b")
    assert stored(model.path) == before


def test_a_model_without_ancestor(pictures: Path, tmp_path: Path) -> None:
    """It is described, and its only task dropped; answers and lessons need torch."""
    model = tmp_path / "model"
    teach(pictures / "a", model, epochs=1)
    assert [task.name for task in EdgeModel(model).tasks] == ["a"]
    for act in (
        lambda: EdgeModel(model).predict(held(pictures)),
        lambda: EdgeModel(model).learn(pictures / "b"),
    ):
        with pytest.raises(RivalsError, match=r"began with no ancestor, and without torch only"):
            act()
    EdgeModel(model).drop("a")
    assert_whole(model)


# What is refused ----------------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The sentence with which the command refuses."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("rivals-edge: ")
    assert errors.count("\n") == 1
    return errors


def test_one_sentence_each(
    pictures: Path, both: tuple[Path, Path], mixed: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    edge = Path(shutil.copytree(both[0], tmp_path / "model"))
    units = Path(shutil.copytree(mixed, tmp_path / "units"))
    a, c, model = pictures / "a", pictures / "c", ("--model", edge)
    assert "knows a task 'a'; choose another name" in said(capsys, "learn", a, *model)
    assert "has the classes digit 0" in said(capsys, "learn", c, *model, "--name", "a", "--again")
    assert "has no task 'x'" in said(capsys, "learn", c, *model, "--name", "x", "--again")
    assert "leave one of them out" in said(capsys, "learn", a, *model, "--again", "--anew")
    assert "made with size 32" in said(capsys, "learn", c, *model, "--size", "64")
    assert "made with ancestor tiny" in said(capsys, "learn", c, *model, "--ancestor", "small")
    assert "There is no ancestor named 'x'" in said(
        capsys, "learn", c, "--model", tmp_path / "new", "--ancestor", "x"
    )
    assert "holds one class, 'tasks'" in said(capsys, "learn", edge, "--model", tmp_path / "new")
    assert "was not learned in closed form" in said(capsys, "learn", a, "--model", units, "--again")
    assert "There is no task named 'x'" in said(capsys, "drop", "x", *model)
    assert "There is no model" in said(capsys, "info", tmp_path / "new")
    picture = held(pictures)[0]
    assert "There is no task named 'x'" in said(capsys, "predict", picture, *model, "--task", "x")
    assert "is at least 0 and below 1" in said(capsys, "predict", picture, *model, "--reject", "2")
    assert "There is no picture" in said(capsys, "predict", tmp_path / "x.png", *model)
    monkeypatch.setattr(picture_source, "MOST_CLASSES", 2)
    assert "has 4 classes; a task has at most" in said(capsys, "learn", c, *model)
    monkeypatch.undo()
    wrong = tmp_path / "wrong"
    for name in ("one", "two"):
        (wrong / name).mkdir(parents=True)
        for number in range(2):
            (wrong / name / f"{number}.png").write_bytes(b"no picture")
    assert "0 pictures (2 left out; " in said(capsys, "learn", wrong, *model)
    assert not (tmp_path / "new").exists()
    assert marks(edge) == marks(both[0])


def marks(path: Path) -> dict[str, bytes]:
    return {**stored(path), "model.json": (path / "model.json").read_bytes()}


def test_some_files_are_left_out(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Path(shutil.copytree(pictures / "a", tmp_path / "a"))
    (place / "digit 0" / "x.png").write_bytes(b"no picture")
    model = ("--model", tmp_path / "model", "--ancestor", "tiny", "--size", "16")
    assert "cannot be learned from (x.png)" in said(capsys, "learn", place, *model, "--strict")
    assert main(["learn", str(place), *map(str, model)]) == 0
    assert "x.png is not a picture" in capsys.readouterr().out
    good, bad = str(place / "digit 0" / "x.png"), held(pictures)[0]
    words = ["predict", good, bad, "--model", str(tmp_path / "model"), "--json"]
    assert main(words) == 2  # what can be read is answered
    found = capsys.readouterr()
    assert [row["image"] for row in json.loads(found.out)] == [bad]
    assert found.err.count("\n") == 1


def damages() -> Iterator[tuple[str, Callable[[dict[str, Any]], None]]]:
    """What a hostile file of a task may hold, with a checksum that fits."""
    yield "no covariance", lambda a: a.update({"kept.rooted_covariance": indefinite(a)})
    yield "levels upside down", lambda a: a.update({"kept.familiar": a["kept.familiar"][::-1] * 1})
    yield "no spread", lambda a: a.update({"kept.usual": np.zeros((2, 2), np.float32)})
    yield "cold", lambda a: a.update({"kept.temperature": np.zeros(1, np.float32)})
    yield "no roots", lambda a: a.pop("kept.rooted_means")
    yield "another width", lambda a: a.update({"kept.means": a["kept.means"][:, :-1].copy()})
    yield "not finite", lambda a: a.update({"kept.scale": np.array([np.inf], np.float32)})
    yield "no pictures", lambda a: a.update({"kept.counts": np.zeros(3, np.int32)})
    yield "more", lambda a: a.update({"more": np.zeros(3, np.float32)})
    yield "less", lambda a: a.pop("levels")
    yield "a direct one", lambda a: a.update({"direct.weight": a.pop("kept.prior")})
    yield "units", lambda a: a.update({"rivals0.winners.x": a.pop("kept.prior")})


def indefinite(arrays: dict[str, Any]) -> Any:
    """Half of a matrix that is no covariance: the first two features are more than equal."""
    width = arrays["kept.rooted_means"].shape[1]
    whole = np.eye(width, dtype=np.float16)
    whole[0, 1] = whole[1, 0] = 3.0
    return whole[np.triu_indices(width)]


@pytest.mark.parametrize("name", [name for name, _ in damages()])
def test_damaged_files_are_refused(name: str, both: tuple[Path, Path], tmp_path: Path) -> None:
    path = Path(shutil.copytree(both[0], tmp_path / "model"))
    task = EdgeModel(path).tasks[0]
    arrays = safetensors.numpy.load((path / "tasks" / task.file).read_bytes())
    dict(damages())[name](arrays)
    data = safetensors.numpy.save(arrays)
    (path / "tasks" / task.file).write_bytes(data)
    with pytest.raises(RivalsError, match=r"is not the one that was written|cannot be read"):
        EdgeModel(path).check()
    forge(path, task.file, data)
    for model in (EdgeModel(path), rivals.Model(path)):
        with pytest.raises(RivalsError, match=r"^The model .* is damaged: the file of 'a' "):
            model.check()


def test_a_task_of_an_early_version_is_refused(both: tuple[Path, Path], tmp_path: Path) -> None:
    path = Path(shutil.copytree(both[0], tmp_path / "model"))
    task = EdgeModel(path).tasks[0]
    arrays = safetensors.numpy.load((path / "tasks" / task.file).read_bytes())
    for name in ("temperature", "familiar", "usual", "rooted_means"):
        del arrays[f"kept.{name}"]
    forge(path, task.file, safetensors.numpy.save(arrays))
    for model in (EdgeModel(path), rivals.Model(path)):
        with pytest.raises(RivalsError, match=r"was made by an early rivals 0\.2.*'a' again"):
            model.check()


def forge(path: Path, old: str, data: bytes) -> None:
    """Put other bytes in the place of a task's file, all checksums being right."""
    from rivals.io.files import digest

    content = json.loads((path / "model.json").read_text())
    task = next(each for each in content["tasks"] if each["file"] == old)
    name = manifest.file_name(digest(data))
    task.update(file=name, sha256=digest(data), bytes=len(data))
    content["sha256"] = manifest.checksum(content)
    (path / "tasks" / name).write_bytes(data)
    (path / "model.json").write_text(json.dumps(content))


# The wheel ----------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent
ALLOWED = (
    "numpy", "PIL", "safetensors", "filelock", "pydantic", "pydantic_core", "annotated_types",
    "typing_extensions", "typing_inspection",
)  # fmt: skip
START = """
import sys, time
from importlib.util import find_spec
for name in ("torch", "scipy", "onnxruntime", "typer"):
    assert find_spec(name) is None, name
from rivals.edge.command import main
status = main(sys.argv[1:])
peak = next(line.split()[1] for line in open("/proc/self/status") if "VmHWM" in line)
print(f"{peak} {time.process_time()}", file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, and with the packages that it needs; nothing else is there."""
    pytest.importorskip("build", reason="build is not installed: rivals[dev]")
    place = tmp_path_factory.mktemp("device")
    command = [sys.executable, str(ROOT / "packaging" / "edge.py"), str(place / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (place / "dist").glob("rivals_edge-*.whl")
    shutil.unpack_archive(wheel, place / "site", "zip")
    for name in ALLOWED:
        module = __import__(name)
        home = Path(str(module.__file__))
        home = home.parent if home.name == "__init__.py" else home
        (place / "site" / home.name).symlink_to(home)
        for libraries in home.parent.glob(f"{name.lower().replace('pil', 'pillow')}.libs"):
            (place / "site" / libraries.name).symlink_to(libraries)
    return place / "site"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_a_device_learns_from_the_wheel(device: Path, pictures: Path, tmp_path: Path) -> None:
    """5 × 20 pictures in less than 100 MB and 5 s; the full package answers the same."""
    model = tmp_path / "model"
    photos = folder(tmp_path / "photos", (0, 1, 2, 3, 4), 20)

    def run(*words: str | Path) -> tuple[str, int, float]:
        done = subprocess.run(
            [sys.executable, "-S", "-c", START, *map(str, words)], capture_output=True, text=True,
            env={"PYTHONPATH": str(device), "OMP_NUM_THREADS": "1"}, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        peak, seconds = done.stderr.split()
        return done.stdout, int(peak), float(seconds)

    printed, peak, seconds = run("learn", photos, "--model", model)
    assert "Learned 'photos': 5 classes, 100 pictures" in printed
    assert (peak < 100_000, seconds < 5) == (True, True), (peak, seconds)
    run("learn", pictures / "c", "--model", model)
    printed, peak, seconds = run("predict", held(pictures)[0], "--model", model, "--json")
    assert (peak < 100_000, seconds < 0.7) == (True, True), (peak, seconds)
    (answer,) = json.loads(printed)
    expected = rivals.Model(model).predict(held(pictures)[0])
    assert (answer["task"], answer["label"]) == (expected.task, expected.label)
    assert answer["confidence"] == pytest.approx(expected.confidence, abs=APART)
    assert "Dropped 'c'" in run("drop", "c", "--model", model)[0]
    assert "1 task, " in run("info", model)[0]
    assert_whole(model)
