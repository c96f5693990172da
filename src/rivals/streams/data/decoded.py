"""What every reader gives: two splits of images, class names, and the checks that all must pass."""

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
    """Labels at once, images in chunks when asked for: a large set never sits in memory."""

    labels: Labels
    shape: tuple[int, int, int]  # (channels, height, width)
    chunks: Iterable[Images]
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # further facts, one an image


@dataclass(frozen=True)
class Decoded:
    """A data set as its reader found it."""

    classes: tuple[str, ...]
    train: Split
    test: Split

    def counts(self) -> dict[str, list[int]]:
        """Images of each class in each split."""
        return {
            name: np.bincount(split.labels, minlength=len(self.classes)).tolist()
            for name, split in (("train", self.train), ("test", self.test))
        }


def check_classes(dataset: DataSet, decoded: Decoded) -> None:
    """Every class must have images: a stream with an empty class would silently be another one."""
    if len(decoded.classes) != dataset.classes:
        raise RivalsError(
            f"{dataset.title} has {len(decoded.classes)} classes here, but {dataset.classes} were "
            f"expected; run `rivals data get {dataset.name}` for the official files."
        )
    counts = decoded.counts()
    # Omniglot's two splits have different characters; elsewhere each class is in both
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
    """ "" for a complete set, else what is there of how much."""
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
