"""The blocks of rival units of one layer, or of one residual stage, and who won each task."""

from __future__ import annotations

from collections.abc import MutableMapping

import torch
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.nn.competition import unit_ids, winners
from rivals.nn.task_state import TaskTable


class RivalBlocks(nn.Module):
    """`blocks` blocks of `units` rivals. A task has contenders while it competes, winners after.

    contenders[task]  the units of each block that compete, (blocks, contenders)
    posteriors[task]  their log π, (blocks, contenders)
    winners[task]     the unit that won in each block, (blocks,)
    """

    contenders: MutableMapping[str, Tensor]
    posteriors: MutableMapping[str, Tensor]
    winners: MutableMapping[str, Tensor]

    def __init__(self, blocks: int, units: int) -> None:
        super().__init__()
        if blocks < 1 or units < 1:
            raise RivalsError(
                f"A layer of {blocks} blocks of {units} units; both must be at least 1."
            )
        self.blocks, self.units = blocks, units
        self.attach(TaskTable(), 0)

    def attach(self, table: TaskTable, number: int) -> None:
        """Keep what is known of tasks in `table`, under this number."""
        self.contenders = table.column(f"contenders{number}")
        self.posteriors = table.column(f"posterior{number}")
        self.winners = table.column(f"winners{number}")

    @property
    def count(self) -> int:
        """How many units there are in all blocks."""
        return self.blocks * self.units

    def compete(self, task: str, log_posterior: Tensor, contenders: Tensor | None = None) -> None:
        """Open the competition for `task` among `contenders` (default all), with their log π."""
        if contenders is None:
            units = torch.arange(self.units, device=log_posterior.device)
            contenders = units.expand(self.blocks, -1)
        self.contenders[task] = contenders
        self.posteriors[task] = nn.Parameter(log_posterior.detach().clone())

    def favourite_ids(self, task: str) -> Tensor:
        """The ids of the contenders with the largest log π, in the order of the blocks."""
        best = winners(self.posteriors[task].detach()).unsqueeze(1)
        return unit_ids(self.contenders[task].gather(1, best))

    def settle(self, task: str) -> Tensor:
        """Reduce the posterior of `task` to its winners (Eq. 3); their local ids, (blocks,)."""
        best = winners(self.posteriors.pop(task).detach())
        self.winners[task] = self.contenders.pop(task).gather(1, best.unsqueeze(1)).squeeze(1)
        return unit_ids(best.unsqueeze(1))

    def winner_ids(self, task: str) -> Tensor:
        """The ids of the units that won `task`, in the order of the blocks: (blocks,)."""
        won = self.winners[task]
        return won * self.blocks + torch.arange(self.blocks, device=won.device)

    def extra_repr(self) -> str:
        return f"blocks={self.blocks}, units={self.units}, tasks={len(self.winners)}"
