"""Linear heads, however they are fitted: score_c(x) = w_c · x + b_c."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from rivals.naming.discriminant import Head

Fit = Callable[[Tensor, Tensor], Head]  # of rows (n, d) and labels (n,)
Split = tuple[Tensor, Tensor]  # indices of rows: to learn from, to test

FOLDS = 10  # of cross-validation; with five, accuracy is a point or two too low


def held_out_scores(rows: Tensor, labels: Tensor, fit: Fit, splits: Iterable[Split]) -> Tensor:
    """Scores (tested, classes) of the rows that each split tests, by a head from the others.

    One split is a hold-out, several are cross-validation. The order is that of `held_out_rows`.
    """
    parts = []
    for learned, tested in splits:
        weight, bias = fit(rows[learned], labels[learned])
        parts.append(rows[tested] @ weight.T + bias)
    return torch.cat(parts)


def held_out_rows(splits: Iterable[Split]) -> Tensor:
    """Which rows are tested, in the order of `held_out_scores`."""
    return torch.cat([tested for _, tested in splits])
