"""The control of the competition: winners drawn at random, everything else as in TWTA."""

from __future__ import annotations

from rivals.learn.method import methods
from rivals.learn.twta import TWTA


@methods.register("random-ticket")
class RandomTicket(TWTA):
    """Same settings, network, protection, inheritance, growth and steps, but random winners.

    They are drawn uniformly from the units of a block, whether their edges are free or not.
    """

    def compete_steps(self) -> int:
        return 0

    def preference(self) -> float:
        return 0.0
