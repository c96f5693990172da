"""How the images of a data set are divided: training, validation, test. One place for all streams.

Training and test images stand behind one index, training first, so that the paper's random 9:1
split over both is the same operation as the official one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rivals.errors import RivalsError
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.data.loading import Loaded
from rivals.streams.stream import StreamItem, stratified
from rivals.streams.task import Examples, Preprocessing, Task

ClassOrder = Literal["natural", "seeded"]


class SplitSettings(Settings):
    """The settings of every stream on official data."""

    tasks: int = Field(0, ge=0, description="use the first so many tasks; 0: all")
    split: str = Field("official", description="official, or random_9_1 over all images")
    validation_share: float = Field(
        0.05, ge=0, le=0.5, description="of the training images of each class"
    )
    per_class: int = Field(0, ge=0, description="at most so many training images a class; 0: all")
    test_per_class: int = Field(0, ge=0, description="at most so many test images a class; 0: all")
    duplicates: Literal["drop", "keep"] = Field(
        "drop", description="training images that are also test images, pixel for pixel"
    )

    SPLITS: ClassVar[tuple[str, ...]] = ("official", "random_9_1")

    def check(self) -> None:
        if self.split not in self.SPLITS:
            raise RivalsError(f"split is '{self.split}'; use {' or '.join(self.SPLITS)}.")

    def describe_subset(self, subset: str, full: int) -> str:
        """What results must say: the data set's own `subset` and what these settings leave out."""
        limits = [
            (self.per_class, f"at most {self.per_class:,} training images a class used"),
            (self.test_per_class, f"at most {self.test_per_class:,} test images a class used"),
            (0 < self.tasks < full, f"{self.tasks} of {full} tasks"),
        ]
        return "; ".join([*filter(None, [subset]), *(text for limit, text in limits if limit)])

    def length(self, full: int) -> int:
        """How many tasks of a stream of `full`."""
        if self.tasks > full:
            raise RivalsError(f"tasks is {self.tasks}, but the stream has {full}; use 0 for all.")
        return self.tasks or full


def ordered(count: int, class_order: str, seed: Seed) -> Tensor:
    """`count` classes in their natural order or shuffled by `seed`."""
    if class_order == "natural":
        return torch.arange(count)
    return torch.randperm(count, generator=seed.child("classes").torch())


class Pool:
    """The training and test images of a data set behind one index."""

    def __init__(self, data: Loaded) -> None:
        self.data = data
        self.border = len(data.train.labels)
        labels = np.concatenate([data.train.labels, data.test.labels])
        self.labels = torch.from_numpy(labels)  # (n,)
        digests = [part.extra["digests"] for part in (data.train, data.test)]
        self.digests = torch.from_numpy(np.concatenate(digests))  # (n,), of the pixels

    def take(self, index: Tensor) -> Tensor:
        """Images (n, channels, height, width) at the ascending `index`, read from mapped files."""
        numbers = index.numpy()
        first, second = numbers[numbers < self.border], numbers[numbers >= self.border]
        parts = [
            np.asarray(part.images[rows])
            for part, rows in ((self.data.train, first), (self.data.test, second - self.border))
            if len(rows)
        ]
        if not parts:
            return torch.empty(0, *self.data.train.images.shape[1:], dtype=torch.uint8)
        return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))


@dataclass(frozen=True)
class Parts:
    """Ascending indices into a pool."""

    train: Tensor
    validation: Tensor
    test: Tensor


def item_of_group(
    number: int, group: Tensor, names: Sequence[str], parts: Parts, labels: Tensor,
    take: Callable[[Tensor], Tensor], preprocessing: Preprocessing,
) -> StreamItem:  # fmt: skip
    """Task `number`: the classes in `group`, labelled by their place there.

    Args:
        parts: Indices of its examples, which may be among those of other classes.
        labels: The class of each index.
        take: The images at some indices.
    """

    def pick(among: Tensor) -> Examples:
        chosen = among[torch.isin(labels[among], group)]
        return Examples(take(chosen), (labels[chosen].unsqueeze(1) == group).int().argmax(1))

    train, validation, test = (pick(part) for part in (parts.train, parts.validation, parts.test))
    classes = tuple(names[each] for each in group.tolist())
    name = f"split-{number + 1}"
    return StreamItem(Task(name, classes, train, validation, preprocessing), test)


def limit(index: Tensor, labels: Tensor, count: int, seed: Seed) -> Tensor:
    """At most `count` of each class among `index` (0 = all), chosen by `seed`; ascending."""
    if count == 0 or len(index) == 0:
        return index
    generator = seed.torch()
    shuffled = index[torch.randperm(len(index), generator=generator)]
    present = sorted(set(labels[index].tolist()))
    kept = [shuffled[labels[shuffled] == label][:count] for label in present]
    return torch.cat(kept).sort().values


def restrict(parts: Parts, labels: Tensor, settings: SplitSettings, seed: Seed) -> Parts:
    """`parts` under `per_class` and `test_per_class`; validation shrinks with the training part."""
    few = max(1, round(settings.per_class * settings.validation_share)) * (settings.per_class > 0)
    return Parts(
        limit(parts.train, labels, settings.per_class, seed.child("per-class")),
        limit(parts.validation, labels, few, seed.child("validation-per-class")),
        limit(parts.test, labels, settings.test_per_class, seed.child("test-per-class")),
    )


def unseen(learn: Tensor, test: Tensor, digests: Tensor) -> Tensor:
    """`learn` without those whose pixels are in `test`: some releases repeat images."""
    return learn[~torch.isin(digests[learn], digests[test])]


def divide(pool: Pool, settings: SplitSettings, seed: Seed) -> Parts:
    """The three parts of `pool` before any limit."""
    if settings.split == "official":
        learn, test = torch.arange(len(pool.labels)).tensor_split([pool.border])
    else:
        learn, test = stratified(pool.labels, 0.1, seed.child("test"))
    if settings.duplicates == "drop":
        learn = unseen(learn, test, pool.digests)
    share = settings.validation_share
    kept, held = stratified(pool.labels[learn], share, seed.child("validation"))
    return Parts(learn[kept], learn[held], test)
