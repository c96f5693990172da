"""Permuted MNIST: all ten digits in every task, behind the task's own permutation of the pixels.

`pmnist` has 20 tasks, `pmnist-10` ten, `pmnist-1000` 20 with 1,000 training images each, drawn anew
for every task. The first task is permuted too. Padding to 32×32 follows the permutation.
Pixels are normalised as GPM and WSN do; `pmnist-1000` only divides by 255, as GEM and La-MAML do.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from rivals.seeds import Seed
from rivals.streams.data.loading import load
from rivals.streams.splits import Pool, SplitSettings, divide, restrict
from rivals.streams.stream import Benchmark, Stream, StreamItem, streams
from rivals.streams.task import Examples, Preprocessing, Task

NORMALISED = Preprocessing(scale=255.0, mean=(0.1307,), std=(0.3081,))
PLAIN = Preprocessing(scale=255.0, mean=(0.0,), std=(1.0,))


class PermutedMnistSettings(SplitSettings):
    """How MNIST becomes a stream of permutations."""

    pad: Literal[28, 32] = Field(28, description="pixels a side: 28, or 32 for convolutions")


class ThousandSettings(PermutedMnistSettings):
    """The same with 1,000 training images a task."""

    per_class: int = Field(100, ge=0, description="at most so many training images a class; 0: all")


class PermutedMnist(Stream):
    """One division of the images for all tasks, so that no task trains on another's test digits."""

    def __init__(
        self, name: str, full: int, look: Preprocessing, settings: PermutedMnistSettings, seed: Seed
    ) -> None:
        data = load("mnist")
        self.name, self.preprocessing, self.settings, self.seed = name, look, settings, seed
        self.fingerprint, self.classes = data.fingerprint, data.classes
        self.subset = settings.describe_subset(data.subset, full)
        self.input_shape = (1, settings.pad, settings.pad)
        self.tasks = settings.length(full)
        self.pool = Pool(data)
        self.parts = divide(self.pool, settings, seed)

    def permutation(self, index: int) -> Tensor:
        """Where each of the 784 pixels of task `index` comes from."""
        return torch.randperm(784, generator=self.seed.child("permutation", index).torch())

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        order, edge = self.permutation(index), (self.settings.pad - 28) // 2
        seed = self.seed.child("draw", index)
        parts = restrict(self.parts, self.pool.labels, self.settings, seed)

        def pick(among: Tensor) -> Examples:
            pixels = self.pool.take(among).flatten(1)[:, order].view(-1, 1, 28, 28)
            return Examples(functional.pad(pixels, (edge,) * 4), self.pool.labels[among])

        train, validation, test = (
            pick(part) for part in (parts.train, parts.validation, parts.test)
        )
        name = f"permutation-{index + 1}"
        return StreamItem(Task(name, self.classes, train, validation, self.preprocessing), test)


def _register(name: str, full: int, settings: type[SplitSettings], look: Preprocessing) -> None:
    def build(chosen: PermutedMnistSettings, seed: Seed) -> Stream:
        return PermutedMnist(name, full, look, chosen, seed)

    streams.register(name)(Benchmark(settings, build))


_register("pmnist", 20, PermutedMnistSettings, NORMALISED)
_register("pmnist-10", 10, PermutedMnistSettings, NORMALISED)
_register("pmnist-1000", 20, ThousandSettings, PLAIN)
