"""Experiences of Avalanche as tasks: `stream_from(benchmark)` is a `rivals.Stream`.

Pictures are read as they are stored. Frozen transforms, such as the permutations of PermutedMNIST,
belong to them; others, which augment or normalise, do not: a method of rivals does that itself.

Avalanche imports torchvision, which is prepared first where it was built for another torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.io.pictures import Shape, to_pixels
from rivals.nn.timm_library import import_torchvision
from rivals.streams.stream import Stream
from rivals.streams.task import Preprocessing

try:
    import_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solvers that a few of its strategies need
        import avalanche.training  # noqa: F401
except ModuleNotFoundError as missing:
    raise RivalsError(
        f"rivals.avalanche needs the package {missing.name}, not installed here; "
        "run pip install 'rivals[avalanche]'."
    ) from missing

Labelled = Any  # a dataset of Avalanche, of (picture, label) or (picture, label, task label)


def stream_from(
    benchmark: Any,
    *,
    size: int | None = None,
    name: str = "avalanche",
    validation_share: float = 0.1,
    preprocessing: Preprocessing | None = None,
    seed: int = 0,
) -> Stream:
    """An Avalanche benchmark as a stream: experience k is the task `experience-k`.

    Experience k of the test stream holds the task's test examples. Where the test stream has one
    experience for all, a task is tested with those of its classes. Labels become names of classes.

    Args:
        benchmark: It has the streams train and test, and both end.
        size: Pixels a side, to which all pictures are brought; None: they are of one size.
        name: What results call the stream.
        validation_share: Share of each class that is held out of training.
        preprocessing: From bytes to network input; by default to about −2 … 2.
        seed: Of that split.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from rivals.avalanche import stream_from
    >>> from avalanche.benchmarks import class_incremental_benchmark
    >>> from avalanche.benchmarks.utils import as_classification_dataset
    >>> def pictures(count):
    ...     data = TensorDataset(torch.rand(count, 1, 8, 8), torch.arange(count) % 4)
    ...     data.targets = data.tensors[1].tolist()
    ...     return as_classification_dataset(data)
    >>> sets = {"train": pictures(80), "test": pictures(40)}
    >>> order = [0, 1, 2, 3]
    >>> benchmark = class_incremental_benchmark(sets, num_experiences=2, class_order=order)
    >>> stream = stream_from(benchmark)
    >>> [(item.task.name, item.task.classes, len(item.test)) for item in stream]
    [('experience-0', ('0', '1'), 20), ('experience-1', ('2', '3'), 20)]
    """
    train, test = experiences(benchmark, "train"), experiences(benchmark, "test")
    learned = [stored(each.dataset) for each in train]
    if len(test) == len(train):
        held = [stored(each.dataset) for each in test]
    elif len(test) == 1:
        held = [of_classes(stored(test[0].dataset), labels(each)) for each in learned]
    else:
        raise RivalsError(
            f"The benchmark has {len(train)} experiences to train on and {len(test)} to test, but "
            "as many of both were expected, or one to test with; give it another test stream."
        )
    return Stream.from_datasets(
        learned, held, size=size, names=[task_name(number) for number in range(len(train))],
        name=name, validation_share=validation_share, preprocessing=preprocessing, seed=seed,
    )  # fmt: skip


def task_name(experience: int) -> str:
    """What the task of an experience is called."""
    return f"experience-{experience}"


def experiences(benchmark: Any, which: str) -> list[Any]:
    """All experiences of one stream of a benchmark."""
    stream = getattr(benchmark, f"{which}_stream", None)
    if stream is None:
        raise RivalsError(
            f"An Avalanche benchmark with a {which} stream was expected, but the "
            f"{type(benchmark).__name__} has none."
        )
    if not hasattr(stream, "__len__"):
        raise RivalsError(
            f"The {which} stream of the benchmark has no length, but a stream that ends was "
            "expected; make a list of its experiences first."
        )
    return list(stream)


def stored(dataset: Labelled) -> Labelled:
    """The dataset without transforms that augment or normalise; frozen ones stay.

    What it is a part of has transforms, too, and these are in the group `train` unless somebody
    chose another one.
    """
    return dataset.train().remove_current_transform_group()


def labels(dataset: Labelled) -> set[int]:
    return {int(label) for label in dataset.targets}


def of_classes(dataset: Labelled, classes: set[int]) -> Labelled:
    """The examples of some classes."""
    return dataset.subset([k for k, label in enumerate(dataset.targets) if int(label) in classes])


def as_bytes_of(dataset: Labelled, shape: Shape) -> Labelled:
    """The dataset with its pictures as bytes (channels, height, width), for data loaders."""
    return dataset.train().replace_current_transform_group((partial(picture_bytes, shape), None))


def picture_bytes(shape: Shape, picture: Any) -> Tensor:
    return torch.from_numpy(to_pixels(picture, shape).copy())  # torch wants it writable


def one_task(
    dataset: Labelled, experience: int, size: int | None, validation_share: float, seed: int
) -> Stream:
    """The stream of one experience, as `stream_from` has it, but without test examples of it."""
    train: Sequence[Labelled] = [stored(dataset)]
    return Stream.from_datasets(
        train, [train[0].subset([0])], size=size, names=[task_name(experience)], name="avalanche",
        validation_share=validation_share, seed=seed,
    )  # fmt: skip
