"""The control of the competition: winners drawn at random, everything else as in TWTA."""

from __future__ import annotations

from rivals.methods.method import methods
from rivals.methods.twta import TWTA


@methods.register("random-ticket")
class RandomTicket(TWTA):
    """Same settings, network, protection, inheritance, growth and steps; but nobody competes.

    The favourites of the first draw win at once, so the preference for free edges holds here too.
    """

    def compete_steps(self) -> int:
        return 0
