"""What a learner is given: a task, its classes, training and validation data. Never test data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rivals.streams.preprocessing import Preprocessing as Preprocessing
from rivals.streams.preprocessing import centred as centred


@dataclass(frozen=True)
class Examples:
    """Images as they are stored, and labels counted from 0 within their task.

    >>> examples = Examples(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1]))
    >>> len(examples), examples.subset(torch.tensor([1, 3])).labels.tolist()
    (4, [1, 1])
    """

    images: Tensor  # (n, channels, height, width) uint8
    labels: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, index: Tensor) -> Examples:
        """The examples at `index`."""
        return Examples(self.images[index], self.labels[index])


@dataclass(frozen=True)
class Task:
    """One task of a stream: a name, class names, and what a method may learn from.

    >>> import torch, rivals
    >>> from rivals.streams.task import Examples, Preprocessing
    >>> few = Examples(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]))
    >>> task = rivals.Task("pets", ("cat", "dog"), few, few, Preprocessing(255.0, (0.5,), (0.25,)))
    >>> task.preprocessing(task.train.images).mean().item()
    -2.0
    """

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

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        if self.images.device == device:
            return self
        fields = ("images", "labels", "index", "raw")
        return replace(self, **{name: getattr(self, name).to(device) for name in fields})
