"""The blocks of rival units of one layer, or of one residual stage, and who won each task."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.layers.competition import winners


class Rivals(nn.Module):
    """`blocks` blocks of `units` rivals. A task has a posterior while it competes, winners after.

    posteriors[task]  log π, (blocks, units)
    winners[task]     the unit that won in each block, (blocks,)
    """

    def __init__(self, blocks: int, units: int) -> None:
        super().__init__()
        if blocks < 1 or units < 1:
            raise RivalsError(
                f"A layer of {blocks} blocks of {units} units; both must be at least 1."
            )
        self.blocks, self.units = blocks, units
        self.posteriors: dict[str, Tensor] = {}
        self.winners: dict[str, Tensor] = {}

    @property
    def count(self) -> int:
        """How many units there are in all blocks."""
        return self.blocks * self.units

    def compete(self, task: str, log_posterior: Tensor) -> None:
        """Open the competition for `task` with log π of shape (blocks, units)."""
        self.posteriors[task] = log_posterior.detach().clone().requires_grad_()

    def settle(self, task: str) -> None:
        """Reduce the posterior of `task` to its winners (Eq. 3)."""
        self.winners[task] = winners(self.posteriors.pop(task).detach())

    def winner_ids(self, task: str) -> Tensor:
        """The ids of the units that won `task`, in the order of the blocks: (blocks,)."""
        return self.winners[task] * self.blocks + torch.arange(self.blocks)

    def drop(self, task: str) -> None:
        self.posteriors.pop(task, None)
        self.winners.pop(task, None)

    def extra_repr(self) -> str:
        return f"blocks={self.blocks}, units={self.units}, tasks={len(self.winners)}"
