"""Streams of a user's own: arrays, datasets, folders of pictures; by name, in runs and grids."""

from __future__ import annotations

import doctest
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from rivals.errors import RivalsError
from rivals.registry import imports_allowed
from rivals.seeds import Seed
from rivals.streams import stream as stream_module
from rivals.streams import task as task_module
from rivals.streams.folder_stream import natural
from rivals.streams.stream import Benchmark, NoSettings, Stream, StreamItem, streams

RNG = np.random.default_rng(0)


def pair(count: int = 40, classes: int = 2, shape: tuple[int, ...] = (8, 8)) -> tuple[Any, Any]:
    return RNG.integers(0, 256, (count, *shape), np.uint8), np.arange(count) % classes


def pixels(item: StreamItem, *parts: str) -> set[bytes]:
    held = {"train": item.task.train, "validation": item.task.validation, "test": item.test}
    return {image.numpy().tobytes() for part in parts for image in held[part].images}


def picture_tree(root: Path, tasks: dict[str, list[str]], count: int = 10, size: int = 12) -> Path:
    """Noise around a colour for each class, as PNG files."""
    for number, (task, classes) in enumerate(tasks.items()):
        for label, name in enumerate(classes):
            folder = root / task / name
            folder.mkdir(parents=True)
            rng = np.random.default_rng([number, label])
            for k in range(count):
                noise = rng.integers(0, 60, (size, size, 3)) + 120 * (label % 2)
                Image.fromarray(noise.astype(np.uint8)).save(folder / f"{k}.png")
    return root


@pytest.mark.parametrize("module", [stream_module, task_module], ids=lambda m: m.__name__)
def test_the_examples_of_the_docstrings_run(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 4
    assert found.failed == 0


# A stream is a sequence ---------------------------------------------------------------------------


def test_a_stream_is_indexed_like_a_list() -> None:
    stream = Stream.from_arrays([pair(), pair(), pair()], names=["a", "b", "c"])
    assert len(stream) == 3
    assert [item.task.name for item in stream] == ["a", "b", "c"]
    assert stream[-1].task.name == "c"
    for index in (3, -4):
        with pytest.raises(IndexError, match="has 3 tasks"):
            stream[index]


@pytest.mark.parametrize("name", ["digits", "digits-permuted", "gaussians"])
def test_every_stream_is(name: str) -> None:
    benchmark = streams[name]
    stream = benchmark.build(benchmark.settings(tasks=2), Seed(0))
    first, last = stream
    assert torch.equal(stream[-1].test.images, last.test.images)
    assert not torch.equal(first.test.images, last.test.images)
    with pytest.raises(IndexError):
        stream[2]


# Arrays -------------------------------------------------------------------------------------------


def test_arrays_are_split_class_by_class_and_by_seed_alone() -> None:
    data = pair(100, 5)
    one, same, other = (Stream.from_arrays([data], seed=seed)[0] for seed in (1, 1, 2))
    assert one.test.labels.bincount().tolist() == [4] * 5
    assert one.task.validation.labels.bincount().tolist() == [2] * 5
    assert one.task.train.labels.bincount().tolist() == [14] * 5
    assert len(pixels(one, "train", "validation", "test")) == 100
    assert pixels(one, "test") == pixels(same, "test") != pixels(other, "test")


def test_a_task_is_split_the_same_wherever_it_stands() -> None:
    first, second = pair(), pair()
    here = Stream.from_arrays([first, second], names=["a", "b"])[1]
    there = Stream.from_arrays([second], names=["b"])[0]
    assert pixels(here, "test") == pixels(there, "test")


def test_given_test_arrays_are_the_test() -> None:
    train, test = pair(30, 3), pair(9, 3)
    item = Stream.from_arrays([train], [test])[0]
    assert torch.equal(item.test.images[:, 0], torch.from_numpy(test[0]))
    assert len(item.task.train) + len(item.task.validation) == 30


def test_layouts_and_kinds_of_pixels_are_the_same_images() -> None:
    images, labels = pair(20, 2, (8, 6, 3))
    kinds = [
        images,
        np.moveaxis(images, -1, 1),
        images.astype(np.int64),
        images / 255,
        torch.from_numpy(images).permute(0, 3, 1, 2) / 255,
    ]
    found = [Stream.from_arrays([(kind, labels)]) for kind in kinds]
    assert {stream.input_shape for stream in found} == {(3, 8, 6)}
    assert len({stream.fingerprint for stream in found}) == 1
    assert found[0].fingerprint.startswith("arrays:")


def test_labels_count_from_zero_and_keep_their_names() -> None:
    images, _ = pair(30)
    labels = np.array([7, 3, 90] * 10)
    task = Stream.from_arrays([(images, labels)])[0].task
    assert task.classes == ("3", "7", "90")
    assert sorted(set(task.train.labels.tolist())) == [0, 1, 2]
    words = Stream.from_arrays([(images, np.array(["owl", "cat", "dog"] * 10))])[0].task
    assert words.classes == ("cat", "dog", "owl")
    named = Stream.from_arrays([(images, np.array([0, 2, 1] * 10))], classes=[["x", "y", "z"]])[0]
    assert named.task.classes == ("x", "y", "z")


def test_the_fingerprint_is_of_the_content() -> None:
    images, labels = pair()
    base = Stream.from_arrays([(images, labels)]).fingerprint
    assert Stream.from_arrays([(images.copy(), labels.copy())]).fingerprint == base
    changed = images.copy()
    changed[3, 4, 5] ^= 1
    assert Stream.from_arrays([(changed, labels)]).fingerprint != base
    assert Stream.from_arrays([(images, 1 - labels)]).fingerprint != base
    assert Stream.from_arrays([(images, labels)], names=["other"]).fingerprint != base


@pytest.mark.parametrize(
    ("tasks", "options", "sentence"),
    [
        ([], {}, "no tasks"),
        ([pair(10, 1)], {}, "has one class, '0', but needs at least two"),
        ([pair(4, 2)], {}, "has 2 examples, but needs at least 3"),
        ([(np.zeros((0, 8, 8), np.uint8), [])], {}, "0 images and 0 labels"),
        ([(pair()[0], np.zeros(3))], {}, "40 images and 3 labels"),
        ([(pair()[0], np.arange(40) / 2)], {}, "labels are whole numbers or words"),
        ([(pair()[0] - 0.5, pair()[1])], {}, "floats must lie between 0 and 1"),
        ([(np.full((40, 8, 8), np.nan), pair()[1])], {}, "values from nan to nan"),
        ([pair(40, 2, (5, 8, 8))], {}, "with 1 or 3 channels"),
        ([pair(), pair(shape=(9, 9))], {}, r"Stream.from_datasets with size="),
        ([pair(), pair()], {"names": ["a", "a"]}, "2 different names"),
        ([pair()], {"classes": [["only"]]}, "1 class names need labels from 0 to 0"),
        ([pair()], {"classes": [["a", "a"]]}, "two classes of the same name"),
        ([pair()], {"test": []}, "test has 0 entries, but there are 1 tasks"),
        ([pair()], {"test": [pair(9, 3)]}, "none of its training examples"),
        ([pair()], {"validation_share": 0}, "validation_share is 0"),
        ([pair()], {"test_share": 1}, "test_share is 1"),
        ([(pair()[0],)], {}, "is not a pair"),
    ],
)
def test_arrays_that_do_not_fit_get_one_sentence(
    tasks: list[Any], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RivalsError, match=sentence):
        Stream.from_arrays(tasks, **options)


# Datasets -----------------------------------------------------------------------------------------


class Pictures(Dataset):
    """PIL images of different sizes with a list of class names, as torchvision's datasets."""

    classes = ("cat", "dog", "owl", "bee")

    def __init__(self, labels: list[int], colour: bool = True, seed: int = 0) -> None:
        self.labels, self.colour, self.read = labels, colour, 0
        self.rng = np.random.default_rng(seed)
        sizes = self.rng.integers(10, 30, (len(labels), 2))
        self.pictures = [self.rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        self.read += 1
        picture = Image.fromarray(self.pictures[index])
        return (picture if self.colour else picture.convert("L")), self.labels[index]


def test_datasets_of_pictures_are_brought_to_one_size() -> None:
    colour, grey = Pictures([0, 1] * 10), Pictures([2, 3] * 10, colour=False, seed=1)
    stream = Stream.from_datasets([colour, grey], size=16)
    assert colour.read == grey.read == 1  # the first picture, for the shape
    assert stream.input_shape == (3, 16, 16)
    item = stream[0]
    assert (colour.read, grey.read) == (21, 1)  # a task is decoded when it is asked for
    assert item.task.classes == ("cat", "dog")
    assert stream[1].task.classes == ("owl", "bee")
    first = stream[1].task.train.images
    assert torch.equal(first[:, 0], first[:, 1])
    assert torch.equal(stream[0].test.images, item.test.images)
    assert colour.read == 21  # once


def test_the_fingerprint_of_datasets_is_of_their_pictures() -> None:
    one, same = (Stream.from_datasets([Pictures([0, 1] * 9)], size=8) for _ in range(2))
    other = Stream.from_datasets([Pictures([0, 1] * 9, seed=5)], size=8)
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.fingerprint.startswith("datasets:")


def test_tensors_arrays_and_parts_of_datasets() -> None:
    images, labels = pair(60, 3)
    plain = TensorDataset(torch.from_numpy(images).unsqueeze(1) / 255, torch.from_numpy(labels))
    pairs = list(zip(images, labels.tolist(), strict=True))
    one, other = (Stream.from_datasets([data]) for data in (plain, pairs))
    assert one.fingerprint == other.fingerprint
    assert one.input_shape == (1, 8, 8)
    whole = Pictures([0, 1, 2, 3] * 6)
    part = Subset(whole, [k for k in range(24) if k % 4 in (1, 3)])
    assert Stream.from_datasets([part], size=8)[0].task.classes == ("dog", "bee")


def test_given_test_datasets_are_the_test() -> None:
    train, test = pair(30, 3), pair(9, 3)
    datasets = [TensorDataset(*map(torch.from_numpy, each)) for each in (train, test)]
    item = Stream.from_datasets(datasets[:1], test=datasets[1:])[0]
    assert torch.equal(item.test.images[:, 0], torch.from_numpy(test[0]))


class Endless:
    def __iter__(self) -> Any:
        yield from ()


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ([], "is empty"),
        (Endless(), "map-style dataset was expected"),
        ([1, 2, 3], "pair"),
        (Pictures([0, 1] * 5), "give size="),
        ([(np.zeros((8, 8)), 0.5)] * 9, "labels are whole numbers or words"),
        ([(np.zeros((8, 8)), 0)] * 9, "has one class"),
        ([(np.zeros((8, 8)), k % 2 or "a") for k in range(9)], "both numbers and words"),
        ([(np.zeros(8), k % 2) for k in range(9)], r"has the shape \(8,\)"),
    ],
)
def test_datasets_that_do_not_fit_get_one_sentence(dataset: Any, sentence: str) -> None:
    with pytest.raises(RivalsError, match=sentence):
        Stream.from_datasets([dataset])[0]


def test_labels_that_class_names_do_not_cover_are_refused() -> None:
    with pytest.raises(RivalsError, match="has the label 9, but its 4 class names"):
        Stream.from_datasets([Pictures([0, 9] * 5)], size=8)[0]
    with pytest.raises(RivalsError, match="size is 2"):
        Stream.from_datasets([Pictures([0, 1] * 5)], size=2)


# Folders ------------------------------------------------------------------------------------------


def test_names_are_sorted_as_people_count() -> None:
    names = ["task10", "task2", "Task1", "b", "a9", "a10x", "10", "9"]
    assert sorted(names, key=natural) == ["9", "10", "a9", "a10x", "b", "Task1", "task2", "task10"]


def test_a_folder_of_folders_is_a_stream(tmp_path: Path) -> None:
    tasks = {"task10": ["x", "y"], "task2": ["cat", "dog", "owl"], ".hidden": ["a", "b"]}
    root = picture_tree(tmp_path / "pictures", tasks)
    (root / "notes.txt").write_text("not a task")
    stream = Stream.from_folder(root, size=16, seed=3)
    assert (len(stream), stream.input_shape) == (2, (3, 16, 16))
    first, last = stream
    assert (first.task.name, last.task.name) == ("task2", "task10")
    assert first.task.classes == ("cat", "dog", "owl")
    assert first.test.labels.bincount().tolist() == [2, 2, 2]
    assert first.task.validation.labels.bincount().tolist() == [1, 1, 1]
    assert len(pixels(first, "train", "validation", "test")) == 30
    grey = Stream.from_folder(root, grey=True, per_class=3)
    assert grey.input_shape == (1, 32, 32)
    assert grey[0].task.train.labels.bincount().tolist() == [3, 3, 3]
    assert grey.subset == "at most 3 training images a class used"


def test_train_and_test_folders_are_kept_apart(tmp_path: Path) -> None:
    picture_tree(tmp_path / "given", {"train": ["a", "b"]}, count=6)
    picture_tree(tmp_path / "given", {"test": ["a", "b"]}, count=3, size=20)
    picture_tree(tmp_path, {"split": ["a", "b"]})
    given, split = Stream.from_folder(tmp_path)
    assert given.test.labels.bincount().tolist() == [3, 3]
    assert len(given.task.train) + len(given.task.validation) == 12
    assert split.test.labels.bincount().tolist() == [2, 2]
    (tmp_path / "given" / "test" / "b").rename(tmp_path / "given" / "test" / "c")
    with pytest.raises(RivalsError, match=r"'b' .* only in one of the folders train and test"):
        Stream.from_folder(tmp_path)


def test_a_folders_fingerprint_is_of_its_files_wherever_it_lies(tmp_path: Path) -> None:
    tasks = {"one": ["a", "b"], "two": ["c", "d"]}
    here, there = (picture_tree(tmp_path / place, tasks) for place in ("here", "there"))
    assert Stream.from_folder(here).fingerprint == Stream.from_folder(there).fingerprint
    file = there / "two" / "c" / "4.png"
    file.write_bytes(file.read_bytes() + b"\0")
    assert Stream.from_folder(here).fingerprint != Stream.from_folder(there).fingerprint


def test_pictures_are_decoded_when_their_task_is_asked_for(tmp_path: Path) -> None:
    root = picture_tree(tmp_path, {"one": ["a", "b"], "two": ["c", "d"]})
    for path in (root / "two").rglob("*.png"):
        path.write_bytes(b"not a picture " + path.name.encode())
    stream = Stream.from_folder(root)
    assert stream[0].task.name == "one"
    with pytest.raises(RivalsError, match=r"has 0 pictures \(10 left out; .* is not a picture"):
        stream[1]


def test_folders_that_are_no_stream_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RivalsError, match="There is no folder"):
        Stream.from_folder(tmp_path / "nowhere")
    with pytest.raises(RivalsError, match="holds no tasks"):
        Stream.from_folder(tmp_path)
    picture_tree(tmp_path, {"task": ["only"]})
    with pytest.raises(RivalsError, match="one class, 'only'"):
        Stream.from_folder(tmp_path)
    with pytest.raises(RivalsError, match="size is 1000"):
        Stream.from_folder(tmp_path, size=1000)


# By name ------------------------------------------------------------------------------------------

MODULE = """
import numpy as np
from rivals.settings import Settings
from rivals.streams.stream import Benchmark, Stream

rng = np.random.default_rng(0)

def made(seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 120, (60, 8, 8), np.uint8)
    labels = np.arange(60) % 2
    images[labels == 1] += 120
    return Stream.from_arrays([(images, labels), (images[:, ::-1], labels)], names=["a", "b"])

def always(): return made()
def wrong(): return 3

class Mine(Stream):
    name, input_shape, fingerprint = "mine", (1, 8, 8), "mine:1"
    def __init__(self): self.inner = made()
    def __len__(self): return 2
    def __getitem__(self, index): return self.inner[index]

class Own(Settings):
    shift: int = 0

instance = made()
benchmark = Benchmark(Own, lambda settings, seed: made(settings.shift))
number = 5
"""
SMALL = ["epochs=2", "batch_size=20", "architecture=mlp", "widths=16-16", "units=2"]


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "ownstream.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "ownstream", raising=False)
    return "ownstream"


def build(name: str, seed: int = 0, **settings: Any) -> Stream:
    with imports_allowed([name]):
        benchmark = streams[name]
    return benchmark.build(benchmark.settings(**settings), Seed(seed))


def test_a_name_may_be_a_benchmark_a_stream_or_a_function(own_module: str) -> None:
    assert build("ownstream:instance")[1].task.name == "b"
    assert build("ownstream:always").fingerprint == build("ownstream:instance").fingerprint
    assert build("ownstream:made", 1).fingerprint == build("ownstream:made", 1).fingerprint
    assert build("ownstream:made", 1).fingerprint != build("ownstream:made", 2).fingerprint
    assert build("ownstream:Mine").fingerprint == "mine:1"
    assert build("ownstream:benchmark", shift=4).fingerprint != build("ownstream:instance")
    with pytest.raises(RivalsError, match="type int, but a Stream"):
        build("ownstream:number")
    with pytest.raises(RivalsError, match="returned int, but a Stream"):
        build("ownstream:wrong")
    with pytest.raises(RivalsError, match="was not found"):
        build("ownstream:nothing")


def test_a_stream_can_be_registered() -> None:
    stream = Stream.from_arrays([pair()])
    assert streams.register("for this test")(stream) is stream
    assert streams["for this test"] == Benchmark(NoSettings, streams["for this test"].build)
    assert build("for this test") is stream
    streams._entries.pop("for this test")


def options(changes: list[str]) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.mark.parametrize("name", ["instance", "made", "benchmark", "Mine"])
def test_rivals_run_learns_a_stream_of_ones_own(
    own_module: str, name: str, accepted: Callable[..., str]
) -> None:
    words = ("run", f"ownstream:{name}", *options(SMALL), "--json")
    results = json.loads(accepted(*words))
    assert results["benchmark"] == f"ownstream:{name}"
    assert results["complete"]
    assert [task["name"] for task in results["tasks"]] == ["a", "b"]
    assert results["summary"]["accuracy"]["task_known"] > 90
    (folder,) = Path("runs").iterdir()
    assert folder.name == f"ownstream.{name}-twta-default-0"


def test_a_grid_compares_on_streams_of_ones_own(
    own_module: str, tmp_path: Path, accepted: Callable[..., str]
) -> None:
    root = picture_tree(tmp_path / "my pictures", {"task1": ["a", "b"], "task2": ["c", "d"]})
    words = ("--methods", "finetune", *options([*SMALL]), "--out", "out", "--json")
    said = accepted("compare", "--benchmarks", f"ownstream:made,folder:{root}", *words)
    runs = json.loads(said)["runs"]
    assert [run["status"] for run in runs] == ["finished", "finished"]
    names = sorted(path.name for path in Path("out").iterdir() if path.is_dir())
    assert names[1] == "ownstream.made-finetune-default-0"
    assert names[0].startswith("folder-my.pictures-")
    grid = tmp_path / "grid.yaml"
    text = {"benchmarks": ["ownstream:made", f"folder:{root}"], "methods": ["finetune"]}
    settings = dict(change.split("=") for change in SMALL)
    grid.write_text(json.dumps({**text, "set": settings}))  # JSON is YAML
    again = ("compare", grid, "--out", "out", "--json")
    runs = json.loads(accepted(*again, "--allow-import", "ownstream:made"))["runs"]
    assert [run["status"] for run in runs] == ["kept", "kept"]
    accepted("report", "out", "--out", "report")


LONG = ["epochs=100", "batch_size=4", "architecture=mlp", "widths=16-16", "units=2", "size=8"]


def test_a_run_over_a_folder_is_killed_and_goes_on_to_the_same_bits(
    tmp_path: Path,
    spawn: Callable[..., Any],
    outcome: Callable[[Path], dict[str, Any]],
    refused: Callable[..., str],
    accepted: Callable[..., str],
) -> None:
    root = picture_tree(tmp_path / "pictures", {"task2": ["a", "b"], "task10": ["c", "d"]})
    words = ["run", f"folder:{root}", *options(LONG)]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    accepted(*words, "--json", "--out", whole)

    process = spawn("-m", "rivals.cli.main", *words, "--out", cut, "--save-every", "0.1")
    deadline = time.monotonic() + 120
    while not (cut / "checkpoint" / "manifest.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert (
        not (cut / "results.json").exists()
        or not json.loads((cut / "results.json").read_text())["complete"]
    )
    accepted(*words, "--json", "--out", cut, "--resume")
    assert outcome(cut) == outcome(whole)

    (root / "task2" / "a" / "0.png").unlink()
    said = refused("run", f"folder:{root}", *options(LONG), "--out", cut, "--resume")
    assert "holds another run: its fingerprint is folder:" in said
