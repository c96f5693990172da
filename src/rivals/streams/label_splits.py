"""Dividing labelled pictures, class by class, without torch: held out and learned, or in folds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.seeds import Seed

Places = NDArray[Any]  # numbers of pictures
Halves = tuple[Places, Places]


def stratified_places(labels: NDArray[Any], share: float, seed: Seed) -> Halves:
    """Places split in two, class by class: (1 − share, share), at least one on each side of a
    class that has two or more. Both come back in ascending order."""
    kept, held = [], []
    permutation = seed.permutations()
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members[permutation(len(members))]
        few = round(len(members) * share)
        few = min(max(few, 1), len(members) - 1) if share > 0 else 0
        held.append(members[:few])
        kept.append(members[few:])
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(held))


def fold_places(labels: NDArray[Any], count: int, seed: Seed) -> Iterator[Halves]:
    """Places for cross-validation: (to learn from, to test), every class in all folds it can."""
    permutation, fold = seed.permutations(), np.empty_like(labels)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        members = members[permutation(len(members))]
        fold[members] = np.arange(len(members)) % count
    for number in range(count):
        if bool((fold == number).any()):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)
