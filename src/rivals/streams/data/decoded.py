"""The result of every reader: two splits and class names, with checks for all data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.streams.data.catalogue import DataSet

Images = NDArray[np.uint8]  # (n, channels, height, width)
Labels = NDArray[np.int64]  # (n,)
Reader = Callable[[Mapping[str, Path], int], "Decoded"]


@dataclass(frozen=True)
class Split:
    """Labels in memory, images in chunks: a large data set is never in memory as a whole."""

    labels: Labels
    shape: tuple[int, int, int]  # (channels, height, width)
    chunks: Iterable[Images]
    extra: Mapping[str, NDArray[Any]] = field(
        default_factory=dict
    )  # further values, one for each image


@dataclass(frozen=True)
class Decoded:
    """A data set as read from its official files."""

    classes: tuple[str, ...]
    train: Split
    test: Split

    def counts(self) -> dict[str, list[int]]:
        """Number of images of each class in each split."""
        return {
            name: np.bincount(split.labels, minlength=len(self.classes)).tolist()
            for name, split in (("train", self.train), ("test", self.test))
        }


def check_classes(dataset: DataSet, decoded: Decoded) -> None:
    """Every class must have images: otherwise the benchmark would silently be a different one."""
    if len(decoded.classes) != dataset.classes:
        raise RivalsError(
            f"{dataset.title} has {len(decoded.classes)} classes here, but {dataset.classes} were "
            f"expected; run `rivals data get {dataset.name}` for the official files."
        )
    counts = decoded.counts()
    # the two splits of Omniglot have different characters; elsewhere each class is in both
    disjoint = dataset.name == "omniglot"
    for split in ("train", "test"):
        held = (
            [a + b for a, b in zip(counts["train"], counts["test"], strict=True)]
            if disjoint
            else counts[split]
        )
        for name, count in zip(decoded.classes, held, strict=True):
            if count == 0:
                raise RivalsError(
                    f"{dataset.title} has no {split} image of class '{name}', but each of its "
                    f"{dataset.classes} classes needs some; run `rivals data get {dataset.name}` "
                    "for the official files."
                )


def subset_sentence(dataset: DataSet, counts: Mapping[str, list[int]]) -> str:
    """ "" for a complete data set, else how much of it is there."""
    train, test = counts["train"], counts["test"]
    if dataset.test == 0:
        here, full = sum(train) + sum(test), dataset.train
        return "" if here >= full else f"{dataset.title}: {here:,} of {full:,} images"
    parts = []
    for word, held, full in (("training", train, dataset.train), ("test", test, dataset.test)):
        if sum(held) >= full:
            continue
        if dataset.even and len(set(held)) == 1:
            each = full // dataset.classes
            parts.append(f"{held[0]:,} of {each:,} {word} images a class")
        else:
            parts.append(f"{sum(held):,} of {full:,} {word} images")
    return f"{dataset.title}: {' and '.join(parts)}" if parts else ""
