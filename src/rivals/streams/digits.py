"""The bundled data: 1,797 handwritten digits of 8×8 pixels with values 0 to 16 (`digits.npz`).

`digits` splits the ten classes into tasks of two; `digits-permuted` gives every task all ten
classes behind its own fixed permutation of the pixels.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rivals.errors import RivalsError
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.splits import ClassOrder
from rivals.streams.stream import Benchmark, Stream, StreamItem, stratified, streams
from rivals.streams.task import Examples, Preprocessing, Task

PREPROCESSING = Preprocessing(scale=16.0, mean=(0.3053,), std=(0.3760,))


@cache
def load() -> tuple[Tensor, Tensor, str]:
    """All images (1797, 1, 8, 8), their labels, and the fingerprint of both."""
    with (resources.files("rivals.streams") / "digits.npz").open("rb") as file:
        data = np.load(file, allow_pickle=False)
        images = torch.from_numpy(data["images"]).unsqueeze(1)
        labels = torch.from_numpy(data["labels"]).long()
    digest = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    return images, labels, f"sklearn-digits:{digest[:16]}"


class PermutedSettings(Settings):
    """How many permutations the stream has."""

    tasks: int = Field(20, ge=1, description="permutations of the pixels")
    test_share: float = Field(0.2, gt=0, lt=1, description="of all images, class by class")
    validation_share: float = Field(0.1, gt=0, lt=1, description="of the other images")


class DigitsSettings(Settings):
    """How the digits become a stream."""

    tasks: int = Field(5, ge=1, description="1, 2, 5 or 10 tasks that share the ten classes")
    class_order: ClassOrder = Field("natural", description="natural, or shuffled by the seed")
    test_share: float = Field(0.2, gt=0, lt=1, description="of all images, class by class")
    validation_share: float = Field(0.1, gt=0, lt=1, description="of the other images")

    def check(self) -> None:
        if self.tasks not in (1, 2, 5, 10):
            raise RivalsError(
                f"tasks is {self.tasks}, but the ten digits split into 1, 2, 5 or 10."
            )


class _Digits(Stream):
    input_shape = (1, 8, 8)

    def __init__(self, test_share: float, validation_share: float, seed: Seed) -> None:
        self.images, self.labels, self.fingerprint = load()
        self.seed = seed
        learn, self.test = stratified(self.labels, test_share, seed.child("test"))
        kept, held = stratified(self.labels[learn], validation_share, seed.child("validation"))
        self.train, self.validation = learn[kept], learn[held]


class Digits(_Digits):
    """Tasks of consecutive classes: 0 and 1, then 2 and 3, …"""

    name = "digits"

    def __init__(self, settings: DigitsSettings, seed: Seed) -> None:
        super().__init__(settings.test_share, settings.validation_share, seed)
        order = torch.arange(10)
        if settings.class_order == "seeded":
            order = order[torch.randperm(10, generator=seed.child("classes").torch())]
        self.groups = order.view(settings.tasks, -1)

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        group = self.groups[index]

        def pick(among: Tensor) -> Examples:
            index = among[torch.isin(self.labels[among], group)]
            labels = (self.labels[index].unsqueeze(1) == group).int().argmax(1)
            return Examples(self.images[index], labels)

        classes = tuple(str(digit) for digit in group.tolist())
        train, validation, test = (pick(part) for part in (self.train, self.validation, self.test))
        return StreamItem(Task("-".join(classes), classes, train, validation, PREPROCESSING), test)


class PermutedDigits(_Digits):
    """All ten classes in every task, the pixels of task k reordered by its own permutation."""

    name = "digits-permuted"

    def __init__(self, settings: PermutedSettings, seed: Seed) -> None:
        super().__init__(settings.test_share, settings.validation_share, seed)
        self.tasks = settings.tasks

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        order = torch.randperm(64, generator=self.seed.child("permutation", index).torch())

        def pick(among: Tensor) -> Examples:
            pixels = self.images[among].flatten(1)[:, order].view(-1, 1, 8, 8)
            return Examples(pixels, self.labels[among])

        classes = tuple(str(digit) for digit in range(10))
        train, validation, test = (pick(part) for part in (self.train, self.validation, self.test))
        name = f"permutation-{index + 1}"
        return StreamItem(Task(name, classes, train, validation, PREPROCESSING), test)


streams.register("digits")(Benchmark(DigitsSettings, Digits))
streams.register("digits-permuted")(Benchmark(PermutedSettings, PermutedDigits))
