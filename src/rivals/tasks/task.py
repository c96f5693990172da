"""What a learner is given: a task with its classes, training and validation examples. Never test data."""

from __future__ import annotations

from collections.abc import Iterator
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
    """What one step sees. `index` points into the training set; `raw` are the pixels as stored."""

    images: Tensor  # (n, channels, height, width) float32, preprocessed
    labels: Tensor  # (n,) int64, within the task
    task: str
    index: Tensor  # (n,) int64
    raw: Tensor  # (n, channels, height, width) uint8


def batches(
    examples: Examples, task: Task, size: int, seed: Seed | None, first: int = 0
) -> Iterator[Batch]:
    """One epoch of `examples` in batches, shuffled by `seed` (in order if None), from batch `first`.

    A last batch of a single image joins the one before it: batch statistics need two.
    """
    count = len(examples)
    order = torch.arange(count) if seed is None else torch.randperm(count, generator=seed.torch())
    for number in range(first, batch_count(count, size)):
        last = number == batch_count(count, size) - 1
        index = order[number * size :] if last else order[number * size : (number + 1) * size]
        raw = examples.images[index]
        images = task.preprocessing(raw)
        yield Batch(images, examples.labels[index], task.name, index, raw)


def batch_count(count: int, size: int) -> int:
    """How many batches `batches` makes of `count` examples."""
    full, rest = divmod(count, size)
    return full + (rest > 1 or (rest == 1 and full == 0))
