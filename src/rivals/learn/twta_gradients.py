"""Which gradients of a step are kept: none of protected edges, and of competing units as asked.

The paper lets only the winner of a draw learn, or the units whose posterior is above a threshold
(`gradient_keep`); by default every live unit does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rivals.nn.blocks import RivalBlocks

if TYPE_CHECKING:
    from rivals.learn.twta import TWTA


def drop_gradients(method: TWTA) -> None:
    """Set to zero what must not move."""
    assert method.selection is not None
    for layer, part in method.selection.slices.items():
        assert part.leaf.grad is not None
        if part.free is not None:
            part.leaf.grad *= part.free
        if method.competing and method.settings.gradient_keep != "all":
            rows = method.selection.live(layer.rivals).ids
            part.leaf.grad[~kept_rows(method, layer.rivals, rows)] = 0


def kept_rows(method: TWTA, rivals: RivalBlocks, rows: Tensor) -> Tensor:
    """Which live units keep their gradient: the draw's winner, or those above the threshold."""
    if method.settings.gradient_keep == "threshold":
        posterior = torch.softmax(rivals.posteriors[method.current].detach(), 1)
        return (posterior.T.flatten() >= method.settings.gradient_threshold)[rows]
    assert method.selection is not None
    strength = method.selection.live(rivals).backward
    assert strength is not None
    if strength.dim() == 2:
        strength = strength.mean(0)
    best = strength.detach().view(-1, rivals.blocks).argmax(0)  # (live of a block, blocks)
    kept = torch.zeros(len(rows), dtype=torch.bool)
    kept[best * rivals.blocks + torch.arange(rivals.blocks)] = True
    return kept


def density(method: TWTA) -> float:
    """The share of the shared weights that a step moves."""
    gradients = [part.leaf.grad for part in method.slices() if part.leaf.grad is not None]
    moving = sum(int(gradient.count_nonzero()) for gradient in gradients)
    return moving / method.network.weight_count()
