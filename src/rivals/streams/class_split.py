"""A data set whose classes are dealt out to tasks: CIFAR-10, CIFAR-100, Tiny-ImageNet."""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.seeds import Seed
from rivals.streams.data.loading import Loaded
from rivals.streams.splits import Pool, SplitSettings, divide, ordered, restrict
from rivals.streams.stream import Stream, StreamItem
from rivals.streams.task import Examples, Preprocessing, Task


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
        group = self.groups[index]

        def pick(among: Tensor) -> Examples:
            chosen = among[torch.isin(self.pool.labels[among], group)]
            labels = (self.pool.labels[chosen].unsqueeze(1) == group).int().argmax(1)
            return Examples(self.pool.take(chosen), labels)

        classes = tuple(self.classes[number] for number in group.tolist())
        train, validation, test = (
            pick(part) for part in (self.parts.train, self.parts.validation, self.parts.test)
        )
        name = f"split-{index + 1}"
        return StreamItem(Task(name, classes, train, validation, self.preprocessing), test)
