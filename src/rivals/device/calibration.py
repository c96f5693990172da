"""Knowing what one does not know: how familiar a picture looks, against those held out.

A task scores a picture by the rule that names tasks. When a task is learned, the scores of its
held-out pictures are kept as levels, from the least to the greatest. `reject` = P then refuses what
scores below the level that a share P of the held-out pictures is below: of pictures like those that
were learned, about a share P is refused wrongly, whatever else is refused rightly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.methods.inference import RULES, Kept, Rule
from rivals.tickets.together import Reading

RULE = "pixels+confidence"
LEVELS = 201  # of the scores that are kept


def rule() -> Rule:
    return RULES[RULE]


def levels(view: Tensor, reading: Reading, kept: Kept) -> Tensor:
    """The scores of held-out pictures, evenly spaced from the least to the greatest: (LEVELS,)."""
    scores = rule().score(view, reading, kept)
    return torch.quantile(scores, torch.linspace(0, 1, LEVELS))


def join(one: Tensor, other: Tensor, share: float) -> Tensor:
    """The levels of two sets of held-out pictures together, `share` of which are the other's."""
    values, order = torch.cat([one, other]).sort()
    weights = torch.cat([torch.full_like(one, 1 - share), torch.full_like(other, share)])[order]
    reached = (weights.cumsum(0) - weights / 2) / weights.sum()
    at = torch.searchsorted(reached, torch.linspace(0, 1, LEVELS)).clamp(max=len(values) - 1)
    return values[at]


def least(levels: Tensor, share: float) -> float:
    """The score that a share of the held-out pictures is below."""
    place = share * (LEVELS - 1)
    below = min(int(place), LEVELS - 2)
    return float(torch.lerp(levels[below], levels[below + 1], place - below))


def check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise RivalsError(
            f"The share to reject is {share}, but is at least 0 and below 1; 0.05 refuses about "
            "5 % of the pictures that are known."
        )
