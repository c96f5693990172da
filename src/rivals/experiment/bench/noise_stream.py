"""Tasks made of noise, with a pattern for each class: as large as asked for, and quick to make."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.stream import Benchmark, Stream, StreamItem
from rivals.streams.task import Examples, Preprocessing, Task

PREPROCESSING = Preprocessing(255.0, (0.5,), (0.25,))
TEST_SHARE = 5  # one test image for so many training images


class NoiseSettings(Settings):
    """How many tasks of how many pictures of which size."""

    tasks: int = Field(1, ge=1, description="tasks of the stream")
    images: int = Field(400, ge=1, description="training images of a task")
    classes: int = Field(10, ge=2, description="classes of a task")
    channels: int = Field(3, ge=1, description="1 or 3")
    side: int = Field(32, ge=1, description="pixels a side")


class NoiseStream(Stream):
    """Half a pattern that belongs to the class, half noise."""

    name = "noise"
    fingerprint = "noise"

    def __init__(self, settings: NoiseSettings, seed: Seed) -> None:
        self.settings, self.seed = settings, seed
        self.input_shape = (settings.channels, settings.side, settings.side)

    def __len__(self) -> int:
        return self.settings.tasks

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        generator = self.seed.child("noise", index).torch()
        size = (self.settings.classes, *self.input_shape)
        patterns = torch.randint(0, 128, size, generator=generator, dtype=torch.uint8)
        few = max(2, self.settings.images // TEST_SHARE)
        train, test = (
            self.examples(patterns, count, generator) for count in (self.settings.images, few)
        )
        classes = tuple(str(label) for label in range(self.settings.classes))
        return StreamItem(Task(f"noise-{index + 1}", classes, train, test, PREPROCESSING), test)

    def examples(self, patterns: Tensor, count: int, generator: torch.Generator) -> Examples:
        labels = torch.arange(count) % self.settings.classes
        size = (count, *self.input_shape)
        noise = torch.randint(0, 128, size, generator=generator, dtype=torch.uint8)
        return Examples(patterns[labels] + noise, labels)


benchmark = Benchmark(NoiseSettings, NoiseStream)


def noise_task(shape: tuple[int, int, int], images: int, classes: int, index: int = 0) -> Task:
    """One task of noise, without its test images."""
    settings = NoiseSettings(
        tasks=index + 1, images=images, classes=classes, channels=shape[0], side=shape[1]
    )
    return NoiseStream(settings, Seed(0))[index].task
