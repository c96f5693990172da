"""The control of the competition: winners drawn at random, everything else as in TWTA."""

from __future__ import annotations

from dataclasses import dataclass

from rivals.methods.method import methods
from rivals.methods.twta import TWTA, TWTASettings


@dataclass(frozen=True)
class RandomTicketSettings(TWTASettings):
    """TWTA without competition: the first draw of the posterior decides."""

    compete: float = 0.0


@methods.register("random-ticket")
class RandomTicket(TWTA):
    """Same network, protection, inheritance, growth and steps; nobody competes."""

    settings_class = RandomTicketSettings
