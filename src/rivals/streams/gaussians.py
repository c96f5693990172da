"""Made of nothing but a seed: classes that are normal clouds in 64 dimensions, drawn as 8×8 pixels.

Twenty classes in five tasks of four. A class is a point, and its images lie around it; no task is
easy for a network that learned another, and none needs more than a perceptron.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.stream import Benchmark, Stream, StreamItem, streams
from rivals.streams.task import Examples, Preprocessing, Task

PIXELS = 64
GREY, CONTRAST = 128.0, 20.0  # of a pixel: the value of 0, and of one unit
PREPROCESSING = Preprocessing(scale=255.0, mean=(0.5,), std=(0.25,))


class GaussianSettings(Settings):
    """How many clouds, how far apart, how many points of each."""

    tasks: int = Field(5, ge=1, description="tasks of the stream")
    classes: int = Field(4, ge=1, description="classes of a task")
    distance: float = Field(
        0.35, gt=0, description="deviation of pixels between classes; within a class it is 1"
    )
    train: int = Field(200, ge=1, description="training images of a class")
    validation: int = Field(20, ge=1, description="validation images of a class")
    test: int = Field(50, ge=1, description="test images of a class")


class Gaussians(Stream):
    """Each class has a seed of its own, so a longer stream begins like a shorter one."""

    name = "gaussians"
    input_shape = (1, 8, 8)

    def __init__(self, settings: GaussianSettings, seed: Seed) -> None:
        self.settings, self.seed = settings, seed
        self.fingerprint = "generated"

    def __len__(self) -> int:
        return self.settings.tasks

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        s = self.settings
        numbers = range(index * s.classes, (index + 1) * s.classes)
        sizes = (s.train, s.validation, s.test)
        clouds = [torch.split(self.cloud(number), list(sizes)) for number in numbers]
        train, validation, test = (
            Examples(
                torch.cat([cloud[part] for cloud in clouds]),
                torch.arange(s.classes).repeat_interleave(size),
            )
            for part, size in enumerate(sizes)
        )
        classes = tuple(f"cloud {number + 1}" for number in numbers)
        task = Task(f"clouds-{index + 1}", classes, train, validation, PREPROCESSING)
        return StreamItem(task, test)

    def cloud(self, number: int) -> Tensor:
        """All images of a class, (train + validation + test, 1, 8, 8) bytes."""
        generator = self.seed.child("cloud", number).torch()
        count = self.settings.train + self.settings.validation + self.settings.test
        centre = torch.randn(PIXELS, generator=generator) * self.settings.distance
        points = centre + torch.randn(count, PIXELS, generator=generator)
        return (GREY + CONTRAST * points).round().clamp(0, 255).to(torch.uint8).view(-1, 1, 8, 8)


streams.register("gaussians")(Benchmark(GaussianSettings, Gaussians))
