"""A row of the table: what was measured, in which unit, against which target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """A limit that a value must not pass: `Target("≤", 1.1)` or `Target("≥", 6)`."""

    sign: str
    limit: float

    def met(self, value: float) -> bool:
        return value <= self.limit if self.sign == "≤" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.sign} {number(self.limit)}"


def at_most(limit: float) -> Target:
    return Target("≤", limit)


def at_least(limit: float) -> Target:
    return Target("≥", limit)


@dataclass(frozen=True)
class Row:
    """One measured value. Without a target it is only reported, and `met` is None."""

    name: str  # short and stable
    value: float
    unit: str
    target: Target | None
    how: str  # in one sentence
    spread: tuple[float, float] | None = None  # lower and upper quartile; None: measured once
    suite: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "suite": self.suite,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target": None if self.target is None else str(self.target),
            "limit": None if self.target is None else self.target.limit,
            "met": self.met,
            "spread": None if self.spread is None else list(self.spread),
            "how": self.how,
        }


def number(value: float) -> str:
    """Three digits that mean something: 0.143, 1.05, 12.3, 1,234."""
    if value and abs(value) < 1:
        return f"{value:.3f}"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"
