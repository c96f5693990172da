"""The competition of newcomers and ancestors: who is needed anew, and who may simply win again?

A newcomer starts as a copy of the unit that won the ancestor's task, and is trained for a while as
if its block were free (the trial). Where that moved it far, it wins the block, and its edges are
new. Where it hardly moved, the ancestor's unit wins again: what it has learned is there already,
protected, and costs nothing to keep. An edge is spared where both of its ends won again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rivals.nn.blocks import RivalBlocks

if TYPE_CHECKING:
    from rivals.nn.rival_network import RivalNetwork


@torch.no_grad()
def movement(network: RivalNetwork, ancestor: str) -> dict[RivalBlocks, Tensor]:
    """How far every block's newcomer is from the ancestor's unit, in lengths of it: (blocks,).

    ‖w − w₀‖ / ‖w₀‖,   w all that enters a block, over the layers that write to it
    """
    far: dict[RivalBlocks, Tensor] = {}
    long: dict[RivalBlocks, Tensor] = {}
    for layer in network.layers():
        start = network.ticket_slice(layer, ancestor)  # (row blocks, column blocks, taps)
        apart = (layer.work.values - start).square().sum((1, 2))
        length = start.square().sum((1, 2))
        far[layer.rivals] = far.get(layer.rivals, torch.zeros(())) + apart
        long[layer.rivals] = long.get(layer.rivals, torch.zeros(())) + length
    return {rivals: (far[rivals] / long[rivals].clamp_min(1e-12)).sqrt() for rivals in far}


def least(moved: dict[RivalBlocks, Tensor], share: float) -> dict[RivalBlocks, Tensor]:
    """The share of the blocks of every set of rivals that moved least: (blocks,) bool each."""
    chosen = {}
    for rivals, far in moved.items():
        chosen[rivals] = torch.zeros(len(far), dtype=torch.bool)
        chosen[rivals][far.argsort(stable=True)[: round(share * len(far))]] = True
    return chosen


@torch.no_grad()
def take_back(
    network: RivalNetwork, task: str, ancestor: str, again: dict[RivalBlocks, Tensor]
) -> None:
    """Let the ancestor's unit win again in the blocks that `again` names, (blocks,) bool each.

    Edges between two such blocks are the ancestor's from now on, all others keep what the trial has
    made of them.
    """
    for rivals, chosen in again.items():
        rivals.winners[task] = torch.where(chosen, rivals.winners[ancestor], rivals.winners[task])
    network.retake(task)
