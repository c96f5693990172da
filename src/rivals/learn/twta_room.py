"""Who is asked to compete for a new task, and whether there is room for it.

A posterior starts with favourites, and those with free edges are ahead. If the favourites would
find too little to train, the network grows: one more rival in every block, which leaves all that
was learned as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.nn.blocks import RivalBlocks

if TYPE_CHECKING:
    from rivals.learn.twta import TWTA

GROWTH_ROUNDS = 8  # rivals that a block may gain before one task; one is the rule


def make_room(method: TWTA, task: str) -> list[Tensor]:
    """The posteriors a task starts with, the network having grown where room runs short."""
    for _ in range(GROWTH_ROUNDS):
        _, chosen = propose(method, task)
        shares = trainable_shares(method, chosen)
        low = [rivals for rivals, share in shares.items() if share < method.settings.grow_below]
        if method.settings.grow == "never":
            if max(shares.values()) == 0:
                raise RivalsError(
                    f"The network is full: no edge is free for task '{task}'; "
                    "use grow=auto, more units, or drop a task."
                )
            break
        for rivals in low:
            method.network.grow(rivals)
        if not low:
            break
    return propose(method, task)[0]


def propose(method: TWTA, task: str) -> tuple[list[Tensor], dict[RivalBlocks, Tensor]]:
    """A posterior for each set of rivals, and the units it favours.

    log π ~ N(0, spread²), plus `prefer_free` times the free share of a unit's incoming edges.
    """
    settings, network = method.settings, method.network
    posteriors: list[Tensor] = []
    chosen: dict[RivalBlocks, Tensor] = {}
    for number, rivals in enumerate(network.rivals()):
        spread = settings.spread or math.sqrt(2 / (rivals.blocks + rivals.units))
        generator = method.seed.child("posterior", task, number).torch()
        log_posterior = torch.randn(rivals.blocks, rivals.units, generator=generator) * spread
        if settings.protect == "edges":
            log_posterior += method.preference() * network.free_shares(rivals, chosen)
        if settings.way == "trial" and method.known and rivals.units > 1:  # newcomers are others
            last = rivals.winners[next(reversed(method.known))]
            log_posterior.scatter_(1, last.unsqueeze(1), -math.inf)
        posteriors.append(log_posterior)
        chosen[rivals] = log_posterior.argmax(1) * rivals.blocks + torch.arange(rivals.blocks)
    return posteriors, chosen


def contenders(log_posterior: Tensor, count: int) -> Tensor:
    """The favourites of each block, `count` of them (0: all its units): (blocks, count)."""
    count = min(count or log_posterior.shape[1], log_posterior.shape[1])
    return log_posterior.topk(count, dim=1).indices.sort(dim=1).values


def trainable_shares(method: TWTA, chosen: dict[RivalBlocks, Tensor]) -> dict[RivalBlocks, float]:
    """For each set of rivals, the least trainable share among the layers that it writes."""
    shares: dict[RivalBlocks, float] = {}
    for layer in method.network.layers():
        share = method.network.trainable_share(layer, chosen)
        shares[layer.rivals] = min(share, shares.get(layer.rivals, 1.0))
    return shares
