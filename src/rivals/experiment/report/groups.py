"""What runs are put together to: seeds of one system to a group, comparable groups to a section."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from rivals.experiment.report.report_runs import FinishedRun

NAMES = {
    "twta": "TWTA", "gem": "GEM", "icarl": "iCaRL", "er": "ER", "il2m": "IL2M", "der": "DER++",
    "lamaml": "La-MAML", "fsdgpm": "FS-DGPM", "gpm": "GPM", "softnet": "SoftNet", "llt": "LLT",
    "wsn": "WSN", "sparcl": "SparCL", "ncm": "NCM", "slda": "SLDA", "ranpac": "RanPAC",
    "fecam": "FeCAM",
}  # fmt: skip
REFERENCES = ("random-ticket", "chain", "independent", "finetune", "joint")
ORDER = (*NAMES, *REFERENCES)


@dataclass(frozen=True)
class Spread:
    """Mean and deviation over seeds; one seed has no deviation."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: list[float]) -> Spread | None:
        values = [value for value in values if value is not None and math.isfinite(value)]
        if not values:
            return None
        return cls(mean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass
class Group:
    """One system: the same settings, one run a seed."""

    runs: list[FinishedRun]
    label: str = ""
    variant: int = 0  # among the groups of the same method

    @property
    def method(self) -> str:
        method: str = self.runs[0]["method"]
        return method

    @property
    def reference(self) -> bool:
        return self.method in REFERENCES

    @property
    def ancestor(self) -> str:
        """The network that the system starts from, if that was trained before."""
        return self.runs[0].ancestor

    @property
    def seeds(self) -> list[int]:
        return sorted(run["seed"] for run in self.runs)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a result beside the seed, flat: a setting and its value."""
        return settings_of(self.runs[0])

    def spread(self, of: Callable[[FinishedRun], Any]) -> Spread | None:
        return Spread.of([of(run) for run in self.runs])

    def mean(self, of: Callable[[FinishedRun], Any]) -> float | None:
        found = self.spread(of)
        return found.mean if found else None


@dataclass
class Section:
    """Groups that learned the same tasks from as much data: what may be compared."""

    benchmark: str
    subset: str  # a sentence; empty if the data is complete
    tasks: int
    groups: list[Group] = field(default_factory=list)
    title: str = ""

    @property
    def anchor(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.title.lower()).strip("-")

    @property
    def runs(self) -> list[FinishedRun]:
        return [run for group in self.groups for run in group.runs]


NOT_SETTINGS = ("data", "versions")  # sections of config.yaml


def settings_of(run: FinishedRun) -> dict[str, Any]:
    """What decides a result beside the seed, flat: `competition.share` for a nested setting."""
    flat = {"preset": run["preset"]}
    for name, section in run.config.items():
        if isinstance(section, dict) and name not in NOT_SETTINGS:
            flat |= _flat(section)
    return flat


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def rank(group: Group) -> tuple[int, str, str, float]:
    """Its place in every table: TWTA, the published systems, a user's own, the references."""
    place = ORDER.index(group.method) if group.method in ORDER else len(NAMES) - 0.5
    share = -float(group.runs[0].summary["retained"]["nominal"])
    return (int(2 * place), group.method, group.runs[0]["preset"], share)
