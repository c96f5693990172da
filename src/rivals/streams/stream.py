"""A stream of tasks. The runner walks it; a method only ever sees the task it is handed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rivals.registry import Registry
from rivals.seeds import Seed
from rivals.streams.task import Examples, Task


@dataclass(frozen=True)
class StreamItem:
    """A task for the method, and its test examples for the evaluator alone."""

    task: Task
    test: Examples


class Stream(ABC):
    """Lessons in order, made when asked for, so that one task's images are what is resident."""

    name: str
    input_shape: tuple[int, int, int]  # (channels, height, width)
    length: int  # for the runner's bars and evaluation points; never handed to a method
    fingerprint: str  # of the data as read; goes into config.yaml
    subset: str = ""  # what a result on incomplete data must say, e.g. "150 of 500 images a class"

    @abstractmethod
    def lesson(self, index: int) -> StreamItem:
        """The lesson at `index`, 0 ≤ index < length; the same for the same seed."""


@dataclass(frozen=True)
class Benchmark:
    """How a stream is made: its settings (a frozen dataclass) and the function that builds it."""

    settings: type[Any]
    build: Callable[[Any, Seed], Stream]


streams: Registry[Benchmark] = Registry(
    "benchmark",
    {
        "cifar10": "rivals.streams.cifar_streams",
        "cifar100": "rivals.streams.cifar_streams",
        "cifar100-20": "rivals.streams.cifar_streams",
        "cifar100-incremental": "rivals.streams.cifar_streams",
        "digits": "rivals.streams.digits",
        "digits-permuted": "rivals.streams.digits",
        "five-datasets": "rivals.streams.five_datasets",
        "gaussians": "rivals.streams.gaussians",
        "omniglot-rotation": "rivals.streams.omniglot_rotation",
        "pmnist": "rivals.streams.pmnist",
        "pmnist-10": "rivals.streams.pmnist",
        "pmnist-1000": "rivals.streams.pmnist",
        "tiny-imagenet": "rivals.streams.tiny_imagenet_stream",
    },
)


def stratified(labels: Tensor, share: float, seed: Seed) -> tuple[Tensor, Tensor]:
    """Indices split in two, class by class: (1 − share, share), at least one on each side of a
    class that has two or more. Both come back in ascending order."""
    kept, held = [], []
    generator = seed.torch()
    for label in sorted(set(labels.tolist())):
        members = torch.nonzero(labels == label).flatten()
        members = members[torch.randperm(len(members), generator=generator)]
        few = round(len(members) * share)
        few = min(max(few, 1), len(members) - 1) if share > 0 else 0
        held.append(members[:few])
        kept.append(members[few:])
    return torch.cat(kept).sort().values, torch.cat(held).sort().values
