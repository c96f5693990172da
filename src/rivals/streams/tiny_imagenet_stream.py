"""Tiny-ImageNet in 40 tasks of 5 classes, at 64×64 or 32×32; the test is the official `val` set."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rivals.seeds import Seed
from rivals.streams.class_split import ClassSplit
from rivals.streams.data.loading import load
from rivals.streams.splits import ClassOrder, SplitSettings
from rivals.streams.stream import Benchmark, Stream, streams
from rivals.streams.task import Preprocessing

IMAGENET = Preprocessing(scale=255.0, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class TinyImageNetSettings(SplitSettings):
    """How Tiny-ImageNet becomes a stream."""

    class_order: ClassOrder = Field("natural", description="natural, or shuffled by the seed")
    image_size: Literal[64, 32] = Field(64, description="pixels a side")


def build(settings: TinyImageNetSettings, seed: Seed) -> Stream:
    """The stream `tiny-imagenet`."""
    data = load("tiny-imagenet", 0 if settings.image_size == 64 else settings.image_size)
    return ClassSplit("tiny-imagenet", data, 5, IMAGENET, settings, settings.class_order, seed)


streams.register("tiny-imagenet")(Benchmark(TinyImageNetSettings, build))
