"""Naming without an ancestor: the filter bank, what is usual in its features, and the rule."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import rivals
from rivals.errors import RivalsError
from rivals.learn.model_twta import by_pixels
from rivals.model.folder import ModelFolder
from rivals.naming.drawn_pictures import drawn
from rivals.naming.filter_rule import filter_rule, filter_space
from rivals.nn.filter_bank import SIDE, SUMMED, SUMS, WAVES, WIDTH, FilterBank
from rivals.seeds import Seed
from rivals.streams.task import Examples, Preprocessing, Task
from toys import make, same_bits, teach

OLD_MODEL = Path(__file__).parent / "fixtures" / "model-format-1"
CPU = torch.device("cpu")
NETWORK = {"architecture": "conv-small", "widths": (16, 16), "units": 2}


def stripes(angles: list[float], count: int, seed: int, channels: int = 3) -> NDArray[np.uint8]:
    """Waves of one direction a class, of random phase, colour and brightness: (classes · count, …).

    Four pixels are a wave, so that nothing is left of it where pictures are made small.
    """
    chance = np.random.default_rng(seed)
    down, across = np.mgrid[:SIDE, :SIDE]
    pictures = []
    for angle in angles:
        for _ in range(count):
            along = across * np.cos(angle) + down * np.sin(angle)
            wave = np.sin(1.6 * along + chance.uniform(0, 2 * np.pi))
            colour = chance.uniform(20, 60, (channels, 1, 1))
            noise = chance.normal(0, 12, (channels, SIDE, SIDE))
            pictures.append(chance.uniform(90, 160) + colour * wave + noise)
    return np.stack(pictures).clip(0, 255).astype(np.uint8)


def task_of(number: int, count: int = 40, seed: int = 0, std: float = 0.25) -> Task:
    """Two directions below 90 degrees, where mirrors differ; the next task has the next two."""
    angles = [np.pi * (2 * number + each) / 12 for each in range(2)]
    parts = []
    for part, size in ((0, count), (1, 10)):
        images = torch.from_numpy(stripes(angles, size, seed + 100 * number + part))
        parts.append(Examples(images, torch.arange(2).repeat_interleave(size)))
    return Task(f"t{number}", ("a", "b"), *parts, Preprocessing(255.0, (0.5,), (std,)))


# The bank -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_and_its_mirror_have_the_same_features(channels: int) -> None:
    pictures = torch.rand(4, channels, SIDE, SIDE, generator=Seed(0).torch())
    bank = FilterBank(channels)
    found = bank(pictures)
    assert found.shape == (4, WIDTH)
    assert (found >= 0).all()
    assert torch.allclose(found, bank(pictures.flip(3)), atol=1e-6)
    assert not torch.allclose(found, bank(pictures.flip(2)), atol=1e-2)


def test_even_pictures_have_no_features() -> None:
    even = torch.full((1, 3, SIDE, SIDE), 0.7)
    assert FilterBank(3)(even).max() < 1e-2


def test_second_filters_sum_a_few_maps_and_have_length_one() -> None:
    sums = FilterBank(3).sums
    assert sums.shape == (SUMS, 2 * WAVES, 3, 3)
    assert (sums.flatten(2).abs().sum(2) > 0).sum(1).tolist() == [SUMMED] * SUMS
    assert torch.allclose(sums.flatten(1).norm(dim=1), torch.ones(SUMS))


def test_other_sizes_and_other_numbers_of_channels_are_read() -> None:
    pictures = torch.rand(2, 2, 20, 50, generator=Seed(0).torch())
    found = FilterBank(1)(pictures)
    assert torch.allclose(found, FilterBank(1)(pictures.mean(1, keepdim=True)))
    assert filter_rule(2, CPU).features is not None


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_shipped_is_usual_in_this_bank(channels: int) -> None:
    """Other drawn pictures have the mean and the deviations that the file says."""
    pictures = drawn(400, Seed(1).torch())
    if channels == 1:
        pictures = pictures.mean(1, keepdim=True)
    rows = FilterBank(channels)(pictures).sqrt().double().numpy()
    space = filter_space(channels)
    assert space.covariance is not None
    deviation = np.sqrt(space.covariance.diagonal())
    assert np.abs((rows.mean(0) - space.mean) / deviation).max() < 0.3
    assert np.abs(np.log(rows.std(0) / deviation)).max() < 0.4


# The rule -----------------------------------------------------------------------------------------


def test_tasks_that_pixels_cannot_tell_apart_are_named_by_filters() -> None:
    right = {}
    for rule in ("filters", "pixels+confidence"):
        method = make(network=NETWORK, shape=(3, SIDE, SIDE), epochs=4, **{"naming.rule": rule})
        tasks = [task_of(number) for number in range(3)]
        for task in tasks:
            teach(method, task)
        named = [
            (method.predict(task.validation.images, None).task == number).float().mean()
            for number, task in enumerate(tasks)
        ]
        right[rule] = float(torch.stack(named).mean())
    assert right["filters"] > 0.95
    assert right["pixels+confidence"] < 0.8


def test_what_is_kept_of_a_task_is_of_it_alone() -> None:
    """Neither the tasks before it nor the way that it prepares pictures change a bit."""
    alone = make(network=NETWORK, shape=(3, SIDE, SIDE), epochs=1)
    teach(alone, task_of(1))
    after = make(network=NETWORK, shape=(3, SIDE, SIDE), epochs=1)
    teach(after, task_of(0))
    teach(after, task_of(1, std=0.5))
    one, other = alone.known["t1"].kept, after.known["t1"].kept
    assert one is not None
    assert other is not None
    assert same_bits(one, other)
    assert one["rooted_means"].shape == (2, WIDTH)


def test_dropping_leaves_the_names_of_the_others_as_if_it_never_was() -> None:
    """The same tickets, and statistics of two tasks, whether or not there was a third."""
    methods = []
    for numbers in ((0, 1, 2), (0, 2)):
        method = make(network=NETWORK, shape=(3, SIDE, SIDE), epochs=1, inherit="none")
        for number in numbers:
            teach(method, task_of(number))
        methods.append(method)
    methods[0].drop("t1")
    images = torch.cat([task_of(number).validation.images for number in range(3)])
    features = [m.predictor().group()(images)[-1].features for m in methods]
    assert torch.equal(*features)
    namers = [m.predictor().namer for m in methods]
    scores = [n.rows(features[0]) @ n.tensors(CPU)["weight"].T for n in namers]
    assert torch.equal(*scores)


# Models -------------------------------------------------------------------------------------------


def learn(model: rivals.Model, number: int, name: str = "", **options: Any) -> None:
    task = task_of(number)
    labels = [f"{number}{'ab'[label]}" for label in task.train.labels.tolist()]
    images = list(task.train.images.permute(0, 2, 3, 1).numpy())
    model.learn((np.stack(images), labels), name or task.name, ancestor="none", epochs=2, **options)


def test_a_model_from_nothing_names_by_filters_and_reads_its_files(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    for number in range(2):
        learn(model, number, size=32)
    pictures = task_of(1).validation.images.permute(0, 2, 3, 1).numpy()
    again = rivals.Model(tmp_path / "m")
    answers = again.predict(list(pictures), reject=0.05)
    assert np.mean([answer.task == "t1" for answer in answers]) > 0.9
    assert np.mean([answer.rejected for answer in answers]) < 0.5
    noise = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    assert all(answer.rejected for answer in again.predict(list(noise), reject=0.05))


def test_a_model_of_rivals_0_1_is_named_by_pixels_as_before(tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(OLD_MODEL, old)
    folder = ModelFolder.open(old)
    assert all(by_pixels(record) for record in folder.method.known.values())
    learn(rivals.Model(old), 1, "new")
    known = ModelFolder.open(old).method.known
    assert all(by_pixels(record) for record in known.values())
    learn(rivals.Model(tmp_path / "new"), 2, network="mlp", size=8, grey=True)
    with pytest.raises(RivalsError, match="named by their pixels"):
        rivals.Model(old).join(tmp_path / "new", tmp_path / "both")


def test_a_class_without_pictures_is_never_named() -> None:
    """A stream may have one; all answers stay finite."""
    method = make(network=NETWORK, shape=(3, SIDE, SIDE), epochs=1)
    first, second = task_of(0), task_of(1)
    classes = (*second.classes, "c")
    teach(method, first)
    teach(method, Task("t1", classes, second.train, second.validation, second.preprocessing))
    images = torch.cat([second.validation.images, torch.full((2, 3, SIDE, SIDE), 99).byte()])
    prediction = method.predict(images, None)
    assert prediction.joint is not None
    assert torch.isfinite(prediction.joint).all()
    scores = method.predictor().namer.named(method.predictor().group()(images)[-1].features)
    assert scores[:, 4].max() == 0
    assert (prediction.task[:-2] == 1).float().mean() > 0.9
