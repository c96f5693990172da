"""The control of the competition: winners drawn at random, everything else as in TWTA."""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.layers import Rivals
from rivals.methods.method import methods
from rivals.methods.twta import TWTA


@methods.register("random-ticket")
class RandomTicket(TWTA):
    """Same settings, network, protection, inheritance, growth and steps; but nobody competes.

    The favourites of the first draw win at once, so the preference for free edges holds here too.
    On trial, as many units of the ancestor win again as would in TWTA, wherever chance puts them.
    """

    def compete_steps(self) -> int:
        return super().compete_steps() if self.settings.way == "trial" else 0

    def wins_again(self, rivals: Rivals, moved: Tensor) -> Tensor:
        by_merit = super().wins_again(rivals, moved)
        number = self.network.rivals().index(rivals)
        generator = self.seed.child("again", self.current, number).torch()
        return by_merit[torch.randperm(len(moved), generator=generator)]
