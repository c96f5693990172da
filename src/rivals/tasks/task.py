"""What a learner is given: a task, its classes, training and validation data. Never test data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rivals.seeds import Seed


@dataclass(frozen=True)
class Preprocessing:
    """From stored pixels to network input, channel by channel: (pixels / scale − mean) / std."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) bytes → the same shape in float32."""
        shape = (1, -1, 1, 1)
        factor = torch.tensor([1 / (self.scale * s) for s in self.std]).view(shape)
        offset = torch.tensor([m / s for m, s in zip(self.mean, self.std, strict=True)]).view(shape)
        return images.float() * factor - offset


@dataclass(frozen=True)
class Examples:
    """Images as they are stored, and labels counted from 0 within their task."""

    images: Tensor  # (n, channels, height, width) uint8
    labels: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, index: Tensor) -> Examples:
        return Examples(self.images[index], self.labels[index])


@dataclass(frozen=True)
class Task:
    """One task of a stream: a name, class names, and what a method may learn from."""

    name: str
    classes: tuple[str, ...]
    train: Examples
    validation: Examples
    preprocessing: Preprocessing


@dataclass(frozen=True)
class Batch:
    """What one step sees. `index` points into the training set, `raw` are the stored pixels."""

    images: Tensor  # (n, channels, height, width) float32, preprocessed
    labels: Tensor  # (n,) int64, within the task
    task: str
    index: Tensor  # (n,) int64
    raw: Tensor  # (n, channels, height, width) uint8


def batch_count(examples: int, size: int) -> int:
    """Batches in an epoch; a single image left over joins the batch before it, since batch
    statistics need two."""
    full, rest = divmod(examples, size)
    return full + (rest > 1 or (rest == 1 and full == 0))


def epoch(portions: Sequence[Task], size: int, seed: Seed, first: int = 0) -> Iterator[Batch]:
    """The training sets of `portions` once, shuffled, from batch `first`; no batch mixes tasks.

    The order is a function of the seed, so an epoch that was cut short goes on where it stopped.
    """
    orders = [
        torch.randperm(len(task.train), generator=seed.child("order", task.name).torch())
        for task in portions
    ]
    schedule = [
        (portion, number)
        for portion, order in enumerate(orders)
        for number in range(batch_count(len(order), size))
    ]
    if len(portions) > 1:
        shuffle = torch.randperm(len(schedule), generator=seed.child("schedule").torch())
        schedule = [schedule[i] for i in shuffle.tolist()]
    for portion, number in schedule[first:]:
        task, order = portions[portion], orders[portion]
        last = number == batch_count(len(order), size) - 1
        index = order[number * size : None if last else (number + 1) * size]
        raw = task.train.images[index]
        labels = task.train.labels[index]
        yield Batch(task.preprocessing(raw), labels, task.name, index, raw)
