"""A data set whose classes are dealt out to tasks: CIFAR-10, CIFAR-100, Tiny-ImageNet."""

from __future__ import annotations

from rivals.seeds import Seed
from rivals.streams.data.loading import Loaded
from rivals.streams.splits import (
    Pool,
    SplitSettings,
    divide,
    item_of_group,
    ordered,
    restrict,
)
from rivals.streams.stream import Stream, StreamItem
from rivals.streams.task import Preprocessing


class ClassSplit(Stream):
    """Task k has the classes k·width to (k+1)·width − 1 of the class order."""

    def __init__(
        self,
        name: str,
        data: Loaded,
        width: int,
        preprocessing: Preprocessing,
        settings: SplitSettings,
        class_order: str,
        seed: Seed,
    ) -> None:
        self.name, self.preprocessing = name, preprocessing
        self.fingerprint = data.fingerprint
        self.subset = settings.describe_subset(data.subset, len(data.classes) // width)
        channels, height, side = data.train.images.shape[1:]
        self.input_shape = (channels, height, side)
        self.classes = data.classes
        self.tasks = settings.length(len(data.classes) // width)
        self.groups = ordered(len(data.classes), class_order, seed).view(-1, width)
        self.pool = Pool(data)
        parts = divide(self.pool, settings, seed)
        self.parts = restrict(parts, self.pool.labels, settings, seed)

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        return item_of_group(
            index, self.groups[index], self.classes, self.parts, self.pool.labels, self.pool.take,
            self.preprocessing,
        )  # fmt: skip
