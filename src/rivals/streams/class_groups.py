"""Which classes belong to which task, where tasks are made of one set of classes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch

from rivals.errors import RivalsError, unknown
from rivals.seeds import Seed


def class_order(known: list[str], order: int | Sequence[str] | None) -> list[str]:
    """All classes by chance, or those that are named; None: as they are."""
    if order is None:
        return known
    if isinstance(order, int | np.integer):
        chance = torch.randperm(len(known), generator=Seed(int(order)).child("classes").torch())
        return [known[place] for place in chance.tolist()]
    for name in order:
        if name not in known:
            raise unknown("class", str(name), known)
    if len(set(order)) < len(order):
        raise RivalsError("order names a class twice; name each once.")
    return list(order)


def class_groups(classes: list[str], asked: int | Sequence[int]) -> list[list[str]]:
    """The classes of each task; together all of them."""
    count = len(classes)
    if isinstance(asked, int | np.integer):
        asked = int(asked)
        if asked < 2:
            raise RivalsError(f"classes_per_task is {asked}, but a task needs at least two.")
        counts = [min(asked, count - start) for start in range(0, count, asked)]
    else:
        counts = list(asked)
    if sum(counts) != count or not counts or min(counts) < 2:
        raise RivalsError(
            f"classes_per_task is {asked}, but {count} classes do not make such tasks of at least "
            "two each; choose another number, or in Python a list, one number for each task."
        )
    ends = list(accumulate(counts))
    return [classes[end - size : end] for end, size in zip(ends, counts, strict=True)]
