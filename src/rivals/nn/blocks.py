"""The blocks of rival units of one layer, or of one residual stage, and who won each task."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.nn.competition import unit_ids, winners


class RivalBlocks(nn.Module):
    """`blocks` blocks of `units` rivals. A task has contenders while it competes, winners after.

    contenders[task]  the units of each block that compete, (blocks, contenders)
    posteriors[task]  their log π, (blocks, contenders)
    winners[task]     the unit that won in each block, (blocks,)
    """

    def __init__(self, blocks: int, units: int) -> None:
        super().__init__()
        if blocks < 1 or units < 1:
            raise RivalsError(
                f"A layer of {blocks} blocks of {units} units; both must be at least 1."
            )
        self.blocks, self.units = blocks, units
        self.contenders: dict[str, Tensor] = {}
        self.posteriors: dict[str, Tensor] = {}
        self.winners: dict[str, Tensor] = {}

    @property
    def count(self) -> int:
        """How many units there are in all blocks."""
        return self.blocks * self.units

    def compete(self, task: str, log_posterior: Tensor, contenders: Tensor | None = None) -> None:
        """Open the competition for `task` among `contenders` (default all), with their log π."""
        if contenders is None:
            contenders = torch.arange(self.units).expand(self.blocks, -1)
        self.contenders[task] = contenders
        self.posteriors[task] = log_posterior.detach().clone().requires_grad_()

    def settle(self, task: str) -> Tensor:
        """Reduce the posterior of `task` to its winners (Eq. 3); their local ids, (blocks,)."""
        best = winners(self.posteriors.pop(task).detach())
        self.winners[task] = self.contenders.pop(task).gather(1, best.unsqueeze(1)).squeeze(1)
        return unit_ids(best.unsqueeze(1))

    def winner_ids(self, task: str) -> Tensor:
        """The ids of the units that won `task`, in the order of the blocks: (blocks,)."""
        return self.winners[task] * self.blocks + torch.arange(self.blocks)

    def drop(self, task: str) -> None:
        self.contenders.pop(task, None)
        self.posteriors.pop(task, None)
        self.winners.pop(task, None)

    def extra_repr(self) -> str:
        return f"blocks={self.blocks}, units={self.units}, tasks={len(self.winners)}"
