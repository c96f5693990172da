"""The real files under $RIVALS_DATA: counts, first images, means, and no test image in training."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rivals.seeds import Seed
from rivals.streams import cifar_streams as cifar100
from rivals.streams import five_datasets, omniglot_rotation, pmnist
from rivals.streams import tiny_imagenet_stream as tiny_imagenet
from rivals.streams.data.catalogue import CATALOGUE, dataset
from rivals.streams.data.find import search
from rivals.streams.data.loading import Loaded, load
from rivals.streams.data.status import survey
from rivals.streams.stream import Stream, StreamItem, streams

pytestmark = pytest.mark.data
MODULES = (cifar100, five_datasets, omniglot_rotation, pmnist, tiny_imagenet)

# mean and deviation of the complete training set as the literature gives them (padding excluded)
LITERATURE = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion-mnist": ((0.2860,), (0.3530,)),
    "cifar-10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar-100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
}
# of the first training and the first test image; those of the files in official order hold for the
# complete set too
FIRST = {
    "mnist": ("b7c73a6240cf745c", 5, "f251dcdf1180645f", 7),
    "fashion-mnist": ("62a792805cd7e710", 9, "ed767240ae68013e", 9),
    "svhn": ("b2e58141a88b87a5", 1, "d5841053c07586fb", 5),
    "omniglot": ("5da847e024636946", 0, "dd232e64bdfff708", 964),
    "tiny-imagenet": ("e701358fb197ca95", 0, "ebe8aeaca13d0be8", 0),
}


def held(name: str) -> Loaded:
    if search(dataset(name)) is None:
        pytest.skip(f"{name} is not under $RIVALS_DATA; run `rivals data get {name}`.")
    return load(name)


def build(name: str, seed: int = 0, **settings: object) -> Stream:
    benchmark = streams[name]
    return benchmark.build(benchmark.settings(**settings), Seed(seed))


def digest(image: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> str:
    return hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()[:16]


@pytest.mark.parametrize("name", [entry.name for entry in CATALOGUE])
def test_counts(name: str) -> None:
    data, entry = held(name), dataset(name)
    assert len(data.classes) == len(set(data.classes)) == entry.classes
    train, test = len(data.train.labels), len(data.test.labels)
    assert (train + test >= entry.train + entry.test) == (data.subset == "")
    assert data.train.images.shape[0] == train
    if entry.even and entry.test and name != "omniglot":
        assert len(set(np.bincount(data.train.labels).tolist())) == 1
        assert len(set(np.bincount(data.test.labels).tolist())) == 1


@pytest.mark.parametrize("name", FIRST)
def test_first_images(name: str) -> None:
    data = held(name)
    found = digest(data.train.images[0]), int(data.train.labels[0])
    assert (*found, digest(data.test.images[0]), int(data.test.labels[0])) == FIRST[name]


@pytest.mark.parametrize("name", LITERATURE)
def test_means_and_deviations(name: str) -> None:
    data = held(name)
    pixels = np.asarray(data.train.images, np.float64) / 255
    mean, std = LITERATURE[name]
    # a class-balanced subset comes near, the complete set must agree to the printed digits
    near = 5.1e-5 if not data.subset else 8e-3
    assert pixels.mean((0, 2, 3)) == pytest.approx(mean, abs=near)
    assert pixels.std((0, 2, 3)) == pytest.approx(std, abs=near)


def test_mnist_padded_has_the_constants_of_five_datasets() -> None:
    data = held("mnist")
    pixels = np.pad(
        np.asarray(data.train.images, np.float32) / 255, ((0, 0), (0, 0), (2, 2), (2, 2))
    )
    assert (round(float(pixels.mean()), 4), round(float(pixels.std()), 4)) == (0.1, 0.2752)


def test_mnist_class_counts() -> None:
    data = held("mnist")
    if data.subset:
        pytest.skip("MNIST is a subset here; its class counts are those of the complete set.")
    known = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.train.labels).tolist() == known
    assert survey(dataset("mnist")).official


def test_omniglot_is_964_and_659_characters_of_20_drawings() -> None:
    data = held("omniglot")
    assert len(set(data.train.labels.tolist())) == 964
    assert len(set(data.test.labels.tolist())) == 659
    for part in (data.train, data.test):
        order = part.extra["drawings"].reshape(-1, 20)
        assert (order == np.arange(20)).all()
    assert len({name.rpartition("-")[0] for name in data.classes}) == 50


# Some releases repeat images on both sides: CIFAR-100 and Tiny-ImageNet a handful, mostly with
# different labels, notMNIST where fonts draw the same letter. MNIST, SVHN and Omniglot have none.
@pytest.mark.parametrize("name", [entry.name for entry in CATALOGUE])
def test_official_duplicates_are_counted(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    data = held(name)
    train = [digest(image) for image in np.asarray(data.train.images)]
    test = {digest(image) for image in np.asarray(data.test.images)}
    found = sum(mark in test for mark in train)
    marks = np.isin(data.train.extra["digests"], data.test.extra["digests"])
    assert found == int(marks.sum()), "the stored digests find what the pixels show"
    record_property("duplicates", found)
    none = {"mnist", "fashion-mnist", "svhn", "omniglot"}
    assert found == 0 if name in none else found < 0.02 * len(train), found


def marks(lesson: StreamItem) -> tuple[set[bytes], set[bytes]]:
    learned = [lesson.task.train.images, lesson.task.validation.images]
    train = {image.numpy().tobytes() for part in learned for image in part}
    return train, {image.numpy().tobytes() for image in lesson.test.images}


@pytest.mark.parametrize("split", ["official", "random_9_1"])
@pytest.mark.parametrize("name", ["cifar100", "cifar10", "tiny-imagenet", "five-datasets"])
def test_no_test_image_in_any_training_set(name: str, split: str) -> None:
    settings = {"image_size": 32} if name == "tiny-imagenet" else {}
    stream = build(name, split=split, **settings)
    train: set[bytes] = set()
    test: set[bytes] = set()
    for index in range(len(stream)):
        learned, tested = marks(stream[index])
        train |= {hashlib.blake2b(image).digest() for image in learned}
        test |= {hashlib.blake2b(image).digest() for image in tested}
    assert not train & test


@pytest.mark.parametrize("split", ["official", "random_9_1"])
def test_no_test_digit_in_any_permuted_task(split: str) -> None:
    learned, tested = marks(build("pmnist", split=split)[7])
    assert len(learned) + len(tested) == 70_000
    assert not learned & tested


def upright(image: torch.Tensor) -> bytes:
    return min(torch.rot90(image, turn, (1, 2)).numpy().tobytes() for turn in range(4))


@pytest.mark.parametrize(("split", "leaks"), [("drawing", 0), ("nine_to_one", 0), ("wsn", 1)])
def test_omniglot_leaks_only_as_wsn_splits_it(split: str, leaks: int) -> None:
    stream = build("omniglot-rotation", split=split)
    train: set[bytes] = set()
    test: set[bytes] = set()
    for index in range(0, 100, 4):
        lesson = stream[index]
        assert len(lesson.task.train) + len(lesson.task.validation) + len(lesson.test) == 960
        for part in (lesson.task.train, lesson.task.validation):
            train |= {upright(image) for image in part.images}
        test |= {upright(image) for image in lesson.test.images}
    shared = len(train & test) / len(test)
    assert shared > 0.9 if leaks else shared == 0


def test_a_task_is_what_is_resident() -> None:
    data = held("tiny-imagenet")
    whole = data.train.images.nbytes + data.test.images.nbytes
    stream = build("tiny-imagenet")
    page = os.sysconf("SC_PAGE_SIZE")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before, most = resident(), 0
    for index in range(len(stream)):
        stream[index]
        most = max(most, resident())
    assert most - before < whole / 4


@pytest.mark.parametrize("name", [entry.name for entry in CATALOGUE])
def test_warm_start_is_quick(name: str) -> None:
    held(name)
    code = f"from rivals.streams.data.loading import load; load({name!r})"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert time.perf_counter() - start < 2
