"""Whether a ticket equals the network that it was cut out of, whose other units are masked."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rivals.learn.twta import TWTA
from rivals.nn.blocks import RivalBlocks
from rivals.nn.competition import ActiveUnits, unit_ids
from rivals.nn.selection import Selection
from rivals.tickets.ticket import Ticket

IMAGES = 4  # on which a ticket is compared with its network
MASKED_WEIGHTS = 2**24  # of the network that a ticket is compared with


class SomeMasked(Selection):
    """The winners of a task and up to `most` − 1 other units of each block, times zero."""

    def __init__(self, task: str, most: int) -> None:
        super().__init__(task)
        self.most = most

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        won = rivals.winners[self.task]
        others = torch.arange(min(self.most, rivals.units), device=won.device)
        ids = unit_ids((won.unsqueeze(1) + others) % rivals.units)  # (blocks · others,)
        mask = (torch.arange(len(ids), device=won.device) < rivals.blocks).float()
        return ActiveUnits(ids, mask, mask)


@torch.no_grad()
def compare_with_masked(method: TWTA, ticket: Ticket) -> float:
    """The largest difference of a ticket from its network, where other units are masked.

    More than rounding is refused.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, *ticket.input_shape), generator=generator)
    weights = sum(tensor.numel() for tensor in ticket.network.parameters())
    # All units where that is possible; a network that grew has many thousands.
    most = max(2, math.isqrt(MASKED_WEIGHTS // max(1, weights)))

    def masked(prepared: Tensor) -> Tensor:
        scores: Tensor = method.network.learning(False)(
            prepared.to(method.device), ticket.task, SomeMasked(ticket.task, most)
        )
        return scores.cpu()

    return ticket.verify(images.to(torch.uint8), masked)
