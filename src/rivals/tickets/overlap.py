"""How alike the winners of two tasks are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


def overlap(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The percentage of blocks in which both tasks have the same winner; by chance, 100 / J.

    A direct task has no winners, and nothing in common with another.
    """
    if not one or not other:
        return 0.0
    same = sum(int((a == b).sum()) for a, b in zip(one, other, strict=True))
    return 100 * same / sum(len(a) for a in one)


def overlaps(winners: Sequence[Sequence[Tensor]]) -> list[list[float]]:
    """The overlap of every two tasks, as a table; direct tasks have nothing in common."""
    found = [[0.0] * len(winners) for _ in winners]
    there = [number for number, each in enumerate(winners) if each]
    if there:
        layers = zip(*(winners[number] for number in there), strict=True)
        table = torch.cat([torch.stack(layer) for layer in layers], 1)
        for number, row in zip(there, table, strict=True):
            same = (table == row).sum(1).tolist()
            for other, count in zip(there, same, strict=True):
                found[number][other] = 100 * count / table.shape[1]
    return found


def consecutive_overlap(winners: Sequence[Sequence[Tensor]]) -> float | None:
    """The mean overlap of neighbouring tasks."""
    pairs = [overlap(a, b) for a, b in pairwise(winners)]
    return sum(pairs) / len(pairs) if pairs else None


def overlap_by_chance(winners: Sequence[Sequence[Tensor]], units: Sequence[Sequence[int]]) -> float:
    """What the mean overlap would be if every task drew its winners at random.

    `units` are the rivals in a block when each task was learned; a network may have grown between.
    """
    chances = []
    for (before, after), blocks in zip(pairwise(units), winners[1:], strict=True):
        sizes = [len(block) for block in blocks]
        same = [n / max(a, b) for n, a, b in zip(sizes, before, after, strict=True)]
        chances.append(100 * sum(same) / sum(sizes))
    return sum(chances) / len(chances)
