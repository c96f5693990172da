"""The control of the competition: winners drawn at random, everything else as in TWTA."""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.learn.method import methods
from rivals.learn.twta import TWTA
from rivals.nn.blocks import RivalBlocks


@methods.register("random-ticket")
class RandomTicket(TWTA):
    """Same settings, network, protection, inheritance, growth and steps; but chance decides.

    Winners are drawn evenly among the units of a block, whoever has free edges. On trial, as many
    units of the ancestor win again as would in TWTA, wherever chance puts them.
    """

    def compete_steps(self) -> int:
        return super().compete_steps() if self.settings.way == "trial" else 0

    def preference(self) -> float:
        return 0.0

    def win_again(self, moved: dict[RivalBlocks, Tensor]) -> dict[RivalBlocks, Tensor]:
        generator = self.seed.child("again", self.current).torch()
        drawn = {rivals: torch.rand(len(far), generator=generator) for rivals, far in moved.items()}
        return super().win_again(drawn)
