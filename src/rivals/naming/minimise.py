"""The least value of a smooth function of a few hundred numbers, by L-BFGS.

torch has this search, too, but its optimizers import torch's compiler: a second of CPU and 70 MB,
more than all that is searched for here takes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

MEMORY = 8  # changes of the slope that tell how curved the function is
ENOUGH = 1e-4  # of what the slope promises, a step must gain (Armijo)
FLATTER = 0.9  # of the slope at its start, is left at most at the end of a step (Wolfe)
TRIALS = 20  # to find such a step


def minimise(
    evaluate: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, flat: float, steps: int
) -> Tensor:
    """The point where the function is least, or where `steps` steps lead to.

    Args:
        evaluate: The value and the slope at a point.
        start: In units in which the function is about equally curved in all directions.
        flat: The search ends where no partial derivative is larger.

    >>> import torch
    >>> def bowl(point):
    ...     return float((point - 3).square().sum()), 2 * (point - 3)
    >>> minimise(bowl, torch.zeros(2), flat=1e-6, steps=20)
    tensor([3., 3.])
    """
    point, (value, slope) = start, evaluate(start)
    rounding = torch.finfo(start.dtype).eps
    turns: deque[tuple[Tensor, Tensor]] = deque(maxlen=MEMORY)
    for _ in range(steps):
        if float(slope.abs().max()) <= flat:
            break
        direction = _newton(slope, turns)
        promised = float((slope * direction).sum())
        if -promised <= rounding * abs(value):
            break
        step, short, long = 1.0, 0.0, math.inf
        for _ in range(TRIALS):  # halved where it gains too little, longer while it still goes down
            there = point + step * direction
            reached, new_slope = evaluate(there)
            if reached > value + ENOUGH * step * promised:
                long = step
            elif float((new_slope * direction).sum()) < FLATTER * promised:
                short = step
            else:
                break
            step = 2 * step if long == math.inf else (short + long) / 2
        if reached >= value:
            break
        change, turn = there - point, new_slope - slope
        if float((change * turn).sum()) > 0:
            turns.append((change, turn))
        point, value, slope = there, reached, new_slope
    return point


def _newton(slope: Tensor, turns: deque[tuple[Tensor, Tensor]]) -> Tensor:
    """−H⁻¹ · slope, with the curvature H that explains how the slope changed (Nocedal, 1980)."""
    direction, back = -slope, []
    for change, turn in reversed(turns):
        share = (change * direction).sum() / (change * turn).sum()
        direction = direction - share * turn
        back.append(share)
    if turns:
        change, turn = turns[-1]
        direction = direction * ((change * turn).sum() / turn.square().sum())
    for (change, turn), share in zip(turns, reversed(back), strict=True):
        direction = direction + (share - (turn * direction).sum() / (change * turn).sum()) * change
    return direction
