"""What is accepted wherever pictures are given, and streams made of one set of pictures."""

from __future__ import annotations

import datetime
import itertools
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import rivals
from rivals.cli.main import main
from rivals.errors import RivalsError
from rivals.model.data_source import open_source
from rivals.nn import timm_library
from rivals.seeds import Seed
from rivals.streams.stream import Stream, streams

RNG = np.random.default_rng(0)
MISSING = "datasets is not installed: rivals[datasets]"


def arrays(count: int = 48, classes: int = 4) -> tuple[Any, Any]:
    """Images whose first pixel is their number."""
    images = RNG.integers(0, 256, (count, 8, 8), np.uint8)
    images[:, 0, 0] = np.arange(count)
    return images, np.arange(count) % classes


def numbers(item: Any) -> list[int]:
    """The first pixels of all pictures of a task."""
    parts = (item.task.train, item.task.validation, item.test)
    return sorted(int(value) for part in parts for value in part.images[:, 0, 0, 0])


def flat_folder(root: Path, classes: str = "abcd", count: int = 5) -> Path:
    for place, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for k in range(count):
            Image.new("RGB", (12, 10), (20 * place, 9 * k, 0)).save(root / name / f"{k}.png")
            os.utime(root / name / f"{k}.png", (1000 + k, 1000 + k))
    return root


def pil_pairs(count: int = 24) -> list[tuple[Any, int]]:
    return [(Image.new("RGB", (9, 9), (k, 0, 0)), k % 2) for k in range(count)]


def kinds(root: Path) -> dict[str, Any]:
    """The same kind of task in every form that is accepted without another package."""
    images, labels = arrays(24, 2)
    pixels = torch.from_numpy(images)[:, None] / 255
    return {
        "a folder": flat_folder(root / "flat", "ab", 12),
        "arrays": (images, labels),
        "tensors": (pixels, torch.from_numpy(labels)),
        "a torch dataset": TensorDataset(pixels, torch.from_numpy(labels)),
        "a list of pairs": pil_pairs(),
    }


# Everywhere ---------------------------------------------------------------------------------------


def test_every_kind_is_a_source_and_a_stream(tmp_path: Path) -> None:
    for name, data in kinds(tmp_path).items():
        source = open_source(data, name, None)
        assert [len(items) for items in source.classes.values()] == [12, 12], name
        stream = Stream.by_classes(data, size=8)
        item = stream[0]
        assert len(item.task.train) + len(item.task.validation) + len(item.test) == 24, name
        assert stream.fingerprint == Stream.by_classes(data, size=8).fingerprint
        times = {item: k for items in source.classes.values() for k, item in enumerate(items)}
        assert len(Stream.by_time(data, tasks=2, times=times.get)) == 2, name


def test_a_dataset_of_torchvision() -> None:
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed: rivals[timm]")
    timm_library.import_torchvision()  # also one that was built for another torch
    from torchvision.datasets import FakeData

    data = FakeData(24, (3, 10, 10), 2)
    source = open_source(data, "fake", ["one", "two"])
    assert list(source.classes) == ["one", "two"]
    assert Stream.by_time(data, tasks=2, classes=["one", "two"]).input_shape == (3, 10, 10)


@pytest.fixture(scope="module")
def hugging_face() -> Any:
    """The real package, and a dataset of it that lies in memory."""
    hub = pytest.importorskip("datasets", reason=MISSING)
    pictures = [Image.new("RGB", (9, 9), (k, 0, 0)) for k in range(24)]
    columns = {
        "img": pictures,
        "label": [k % 2 for k in range(24)],
        "place": ["in" if k < 12 else "out" for k in range(24)],
        "taken": [datetime.datetime(2026, 1, 1 + (23 - k) // 4) for k in range(24)],
        "value": [k / 3 for k in range(24)],
        "tags": [[k % 2, 1] for k in range(24)],
    }
    features = hub.Features(
        img=hub.Image(), label=hub.ClassLabel(names=["cat", "dog"]), place=hub.Value("string"),
        taken=hub.Value("timestamp[s]"), value=hub.Value("float32"),
        tags=hub.List(hub.Value("int64")),
    )  # fmt: skip
    return hub, hub.Dataset.from_dict(columns, features=features)


def test_a_dataset_of_hugging_face(hugging_face: Any, tmp_path: Path) -> None:
    _, data = hugging_face
    source = open_source(data, "pets", None)
    assert {name: len(items) for name, items in source.classes.items()} == {"cat": 12, "dog": 12}
    stream = Stream.from_datasets([data], test=[data.select(range(4))], size=8)
    assert stream[0].task.classes == ("cat", "dog")
    assert (stream.input_shape, len(stream[0].test)) == ((3, 8, 8), 4)
    model = rivals.Model(tmp_path / "m")
    assert model.learn(data, "pets", ancestor="tiny").facts.classes == ("cat", "dog")
    assert model.test(data).images == 24


def test_columns_of_hugging_face_make_domains_and_times(hugging_face: Any) -> None:
    _, data = hugging_face
    data = data.remove_columns(["value", "tags"])
    stream = Stream.by_domain(data, "place", size=9, test=data)
    assert [item.task.name for item in stream] == ["in", "out"]
    assert [int(item.test.images[:, 0].max()) for item in stream] == [11, 23]
    late, early = reversed(Stream.by_time(data, tasks=2, times="taken"))
    assert max(numbers(late)) == 11
    assert min(numbers(early)) == 12
    with pytest.raises(RivalsError, match="no column 'placed', but 'img', 'label'"):
        Stream.by_domain(data, "placed")


def test_columns_are_found_by_type_or_asked_for(hugging_face: Any) -> None:
    hub, data = hugging_face
    plain = data.cast_column("label", hub.Value("int32"))
    masks = data.select_columns("img").rename_column("img", "mask")
    sentences = {
        "2 columns of pictures or sounds, 'img', 'mask'; keep one of them, with dataset.select":
            hub.concatenate_datasets([data, masks], axis=1),
        "2 columns of labels, 'label', 'place'": plain,
        "no column of pictures or sounds": data.select_columns(["label", "place"]),
        "'value' of the task 'pets' holds float32 numbers": data.select_columns(["img", "value"]),
        "'tags' of the task 'pets' holds several labels": data.select_columns(["img", "tags"]),
        "streamed and has no length": data.to_iterable_dataset(),
        "is a DatasetDict of 'train'": hub.DatasetDict(train=data),
    }  # fmt: skip
    for sentence, given in sentences.items():
        with pytest.raises(RivalsError, match=sentence.replace("[", r"\[")):
            open_source(given, "pets", None)
    words = open_source(plain.select_columns(["img", "place"]), "pets", None)
    assert list(words.classes) == ["in", "out"]


def test_sounds_of_hugging_face(hugging_face: Any) -> None:
    hub, _ = hugging_face
    from test_sounds import RATE, tone, wav

    files = [{"bytes": wav((tone(400 + 900 * (k % 2)) * 9000).astype("i2")), "path": None}
             for k in range(8)]  # fmt: skip
    words = hub.ClassLabel(names=["no", "yes"])
    data = hub.Dataset.from_dict({"clip": files, "word": [0, 1] * 4})
    data = data.cast_column("clip", hub.Audio()).cast_column("word", words)
    stream = Stream.by_classes(data, size=16)
    assert RATE
    assert stream.sound is not None
    assert stream[0].task.classes == ("no", "yes")


# What is not learned ------------------------------------------------------------------------------


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat((torch.zeros(1, 8, 8), 0))


PIXELS = np.zeros((6, 8, 8), np.uint8)
NOT_LEARNED = {
    "regression": ((PIXELS, np.linspace(0, 1, 6)), "regression is not learned"),
    "regression in a dataset": ([(p, torch.tensor(0.5)) for p in PIXELS], "regression is not"),
    "one-hot rows": ((PIXELS, np.eye(6)), r"labels of shape \(6, 6\), .* multi-label"),
    "several labels": ([(p, [0, 1]) for p in PIXELS], r"label '\[0, 1\]' of one picture"),
    "lists of labels": ((PIXELS, [[0, 1], [1], *[[0]] * 4]), "lists of labels, .* multi-label"),
    "a tensor of labels": ([(p, torch.ones(3)) for p in PIXELS], "multi-label data are not"),
    "boxes": ([(p, {"boxes": []}) for p in PIXELS], "multi-label data are not learned"),
    "endless": (Endless(), "list.itertools.islice.dataset, 1000"),
    "a generator": (((p, 0) for p in PIXELS), "read once and in one order"),
    "a loader": (DataLoader(TensorDataset(torch.zeros(2, 1))), "give its dataset, loader.dataset"),
    "a dictionary": ({"train": 1, "test": 2}, "of 'train', 'test', but one dataset"),
}


def test_data_that_are_no_stream_yet_are_told_how_to_become_one() -> None:
    for data in ((PIXELS, np.arange(6) % 2), [(p, 0) for p in PIXELS], Path("photos")):
        with pytest.raises(
            RivalsError, match=r"of type \w+, but a name or a rivals.Stream was"
        ) as e:
            rivals.run(data)  # type: ignore[arg-type]
        assert len(str(e.value)) < 250


@pytest.mark.parametrize("case", NOT_LEARNED)
def test_what_is_not_learned_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    data, sentence = NOT_LEARNED[case]
    for call in (
        lambda: rivals.Model(tmp_path / "m").learn(data, "x"),
        lambda: Stream.by_classes(data),
        lambda: Stream.from_arrays([data]) if isinstance(data, tuple)
        else Stream.from_datasets([data])[0],
    ):  # fmt: skip
        with pytest.raises(RivalsError, match=sentence) as caught:
            call()
        assert str(caught.value).count(". ") == 0
    assert not (tmp_path / "m" / "model.json").exists()


# Streams of one set -------------------------------------------------------------------------------


def test_by_classes_has_all_classes_once() -> None:
    data = arrays(96, 8)
    for order in (None, 3, [str(k) for k in range(7, -1, -1)]):
        stream = Stream.by_classes(data, 2, order=order)
        found = [name for item in stream for name in item.task.classes]
        assert sorted(found) == [str(k) for k in range(8)]
        assert [number for item in stream for number in numbers(item)] != list(range(96))
        assert sorted(n for item in stream for n in numbers(item)) == list(range(96))
    assert found == [str(k) for k in range(7, -1, -1)]
    assert [len(i.task.classes) for i in Stream.by_classes(data, [4, 2, 2])] == [4, 2, 2]
    assert [len(i.task.classes) for i in Stream.by_classes(data, 3)] == [3, 3, 2]
    some = Stream.by_classes(data, order=["1", "5"], names=["odd"])
    assert [(item.task.name, item.task.classes) for item in some] == [("odd", ("1", "5"))]


def test_the_order_is_that_of_the_seed() -> None:
    data = arrays(96, 8)
    one, same, other = (
        [item.task.classes for item in Stream.by_classes(data, order=seed)] for seed in (1, 1, 2)
    )
    assert one == same != other


def test_given_test_pictures_are_those_of_the_task() -> None:
    train, (images, labels) = arrays(48, 4), arrays(16, 4)
    stream = Stream.by_classes(train, test=(images, labels))
    assert [sorted(item.test.images[:, 0, 0, 0].tolist()) for item in stream] == [
        [0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15],
    ]  # fmt: skip
    assert [item.test.labels.bincount().tolist() for item in stream] == [[4, 4], [4, 4]]


def test_domains_by_value_and_by_dictionary_are_the_same() -> None:
    images, labels = arrays(48, 2)
    inside = np.arange(48) < 24
    apart = Stream.by_domain({"in": (images[:24], labels[:24]), "out": (images[24:], labels[24:])})
    together = Stream.by_domain((images, labels), np.where(inside, "in", "out"))
    assert apart.fingerprint == together.fingerprint
    assert [numbers(item) for item in apart] == [list(range(24)), list(range(24, 48))]
    numbered = Stream.by_domain((images, labels), np.where(inside, 10, 9))
    assert [item.task.name for item in numbered] == ["9", "10"]
    listed = Stream.by_domain([(images[:24], labels[:24]), (images[24:], labels[24:])])
    assert [item.task.name for item in listed] == ["task-1", "task-2"]


def test_time_is_cut_into_equal_parts_and_moments_stay_whole() -> None:
    data = arrays(60, 2)
    assert [numbers(item) for item in Stream.by_time(data, 3)] == [
        [*range(20)], [*range(20, 40)], [*range(40, 60)],
    ]  # fmt: skip
    backwards = Stream.by_time(data, 3, times=-np.arange(60))
    assert numbers(backwards[0]) == [*range(40, 60)]
    days = np.minimum(np.arange(60) // 7, 7)
    parts = [numbers(item) for item in Stream.by_time(data, 3, times=days)]
    assert sum(map(len, parts)) == 60
    for day in range(8):
        assert len({k for k, part in enumerate(parts) for n in part if days[n] == day}) == 1


def test_classes_that_hardly_occur_in_a_time_are_left_out_and_named() -> None:
    images, labels = arrays(40, 2)
    labels[3], labels[38] = 7, 7
    stream = Stream.by_time((images, labels), 2)
    assert [item.task.classes for item in stream] == [("0", "1"), ("0", "1")]
    assert stream.subset == "2 pictures left out, of classes with fewer than 3 in their task"
    assert not Stream.by_time(arrays(), 2).subset


def test_a_folder_by_time(tmp_path: Path) -> None:
    root = flat_folder(tmp_path, "ab", 10)
    first, second = Stream.by_time(root, 2, times=os.path.getmtime, size=8)
    assert {int(v) for v in first.task.train.images[:, 1].flatten()} <= set(range(45))
    assert {int(v) for v in second.task.train.images[:, 1].flatten()} <= set(range(45, 90))
    with pytest.raises(RivalsError, match=r"no order in time; .*times=os\.path\.getmtime"):
        Stream.by_time(root)


MIXED = [*pil_pairs(), (Image.new("RGB", (20, 9)), 0)]
A, B = arrays(24, 2), (arrays(24, 2)[0], np.arange(24) % 2 + 1)
REFUSED = {
    "one class a task": (lambda: Stream.by_classes(A, 1), "needs at least two"),
    "a class over": (lambda: Stream.by_classes(arrays(30, 5)), "5 classes do not make such tasks"),
    "a wrong list": (lambda: Stream.by_classes(A, [2, 2]), r"classes_per_task is \[2, 2\]"),
    "unknown class": (lambda: Stream.by_classes(A, order=["0", "two"]), "two"),
    "a class twice": (lambda: Stream.by_classes(A, order=["0", "0"]), "names a class twice"),
    "new test classes": (lambda: Stream.by_classes(A, test=B), "The class '2' of the test of"),
    "other classes": (lambda: Stream.by_domain({"x": A, "y": B}), "only in one of the domains"),
    "no domains": (lambda: Stream.by_domain(A), "say with domains="),
    "few domains": (lambda: Stream.by_domain(A, [1, 2]), "domains has 2 values, but there are 24"),
    "no columns": (lambda: Stream.by_domain(A, "place"), "only datasets of Hugging Face"),
    "a test of no domain": (lambda: Stream.by_domain(A, [1] * 24, test=A), "none for the pictures"),
    "few tests": (lambda: Stream.by_domain({"x": A, "y": A}, test={"x": A}), "test needs one"),
    "too many times": (lambda: Stream.by_time(A, 30), "of 24 different times; use 2 to 24"),
    "one time": (lambda: Stream.by_time(A, 2, times=[1] * 24), "of 1 different times"),
    "no order": (lambda: Stream.by_time(A, 2, times=[1, "x"] * 12), "cannot be put in order"),
    "no number": (lambda: Stream.by_time(A, 2, times=[float("nan")] * 24), "are no numbers"),
    "many tasks": (lambda: Stream.by_time(A, 12), "has 0 of the classes with 3 pictures"),
    "other sizes": (lambda: Stream.by_classes(MIXED)[0], "20×9 pixels, the first one .* 9×9"),
    "a tiny size": (lambda: Stream.by_classes(A, size=1), "size is 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_streams_that_cannot_be_made_get_one_sentence(case: str) -> None:
    make, sentence = REFUSED[case]
    with pytest.raises(RivalsError, match=sentence):
        make()


# On the command line ------------------------------------------------------------------------------


def exits(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


DATA = """
import numpy as np

images = np.random.default_rng(0).integers(0, 200, (24, 8, 8), dtype=np.uint8)
images[::2, :4] += 50
screws = images, ["upright", "turned"] * 12


def later():
    return screws
"""


def test_learn_and_test_take_a_dataset_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("any_data_here.py").write_text(DATA)
    small = ["--ancestor", "tiny"]
    assert exits(["learn", "any_data_here:screws", "--model", "m", *small]) == 0
    assert exits(["test", "any_data_here:later", "--model", "m"]) == 0
    assert "of 24 pictures" in capsys.readouterr().out
    assert [task.name for task in rivals.Model("m").tasks] == ["screws"]
    assert exits(["learn", "any_data_here:nails", "--model", "m"]) == 2
    assert "'any_data_here:nails' was not found" in capsys.readouterr().err
    assert exits(["learn", "no/such:thing", "--model", "m"]) == 2
    assert "There is no folder no/such:thing" in capsys.readouterr().err


def test_a_folder_of_classes_is_a_benchmark(tmp_path: Path) -> None:
    root = flat_folder(tmp_path / "flat", "abcdef")
    benchmark = streams[f"folder:{root}"]
    settings = benchmark.settings(classes_per_task=2, order=1, size=8)
    stream = benchmark.build(settings, Seed(0))
    assert [len(item.task.classes) for item in stream] == [2, 2, 2]
    assert stream.input_shape == (3, 8, 8)
