"""Runs put together: seeds of one system into a group, comparable groups into a section."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any

from rivals.errors import RivalsError
from rivals.report.runs import FinishedRun

NAMES = {
    "twta": "TWTA", "gem": "GEM", "icarl": "iCaRL", "er": "ER", "il2m": "IL2M", "der": "DER++",
    "lamaml": "La-MAML", "fsdgpm": "FS-DGPM", "gpm": "GPM", "softnet": "SoftNet", "llt": "LLT",
    "wsn": "WSN", "sparcl": "SparCL",
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
    def seeds(self) -> list[int]:
        return sorted(run["seed"] for run in self.runs)

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


def sections(runs: list[FinishedRun]) -> list[Section]:
    """Every run in its group, every group in its section, all in a fixed order."""
    found: dict[tuple[str, str, int], dict[str, list[FinishedRun]]] = defaultdict(dict)
    for run in sorted(runs, key=lambda run: (run["benchmark"], run["seed"], str(run.path))):
        place = (run["benchmark"], run["subset"], len(run["tasks"]))
        found[place].setdefault(_settings_key(run), []).append(run)
    built = []
    for (benchmark, subset, tasks), groups in found.items():
        section = Section(benchmark, subset, tasks, [Group(runs) for runs in groups.values()])
        section.groups.sort(key=rank)
        for group in section.groups:
            _no_seed_twice(group)
        _label(section.groups)
        built.append(section)
    _title(built)
    return sorted(built, key=lambda section: section.title)


def rank(group: Group) -> tuple[int, str, str, float]:
    """Its place in every table: TWTA, the published systems, a user's own, the references."""
    place = ORDER.index(group.method) if group.method in ORDER else len(NAMES) - 0.5
    share = -float(group.runs[0].summary["retained"]["nominal"])
    return (int(2 * place), group.method, group.runs[0]["preset"], share)


def _settings(run: FinishedRun) -> dict[str, Any]:
    """What decides a result beside the seed, flat: a setting and its value."""
    flat = {"preset": run["preset"]}
    for name in ("stream", "network", "training"):
        flat |= run.config.get(name) or {}
    return flat


def _settings_key(run: FinishedRun) -> str:
    return json.dumps([run["method"], _settings(run)], sort_keys=True, default=str)


def _no_seed_twice(group: Group) -> None:
    seen: dict[int, FinishedRun] = {}
    for run in group.runs:
        other = seen.setdefault(run["seed"], run)
        if other is not run:
            raise RivalsError(
                f"{other.path} and {run.path} are the same run (seed {run['seed']}); "
                "leave one of them out."
            )


def _label(groups: list[Group]) -> None:
    """The name of each system; where a method stands twice, with what tells it apart.

    What most systems of the section have is not said: `TWTA` and `TWTA J = 32`.
    """
    usual = _usual(groups)
    by_method: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_method[group.method].append(group)
    for method, same in by_method.items():
        settings = [_settings(group.runs[0]) for group in same]
        keys = list(dict.fromkeys(key for each in settings for key in each))
        differing = [key for key in keys if len({repr(s.get(key)) for s in settings}) > 1]
        beside = [key for key in differing if key != "preset"]
        if len(beside) == 1:  # says more than the name of a preset
            differing = beside
        elif "preset" in differing and len({s["preset"] for s in settings}) == len(same):
            differing = ["preset"]
        for variant, (group, values) in enumerate(zip(same, settings, strict=True)):
            odd = [key for key in differing if usual.get(key, "") != repr(values.get(key))]
            told = [_told(key, values.get(key)) for key in odd[:2]]
            group.variant = variant
            group.label = " ".join([NAMES.get(method, method), *filter(None, [", ".join(told)])])
        for label in {group.label for group in same}:
            alike = [group for group in same if group.label == label]
            for number, group in enumerate(alike if len(alike) > 1 else [], start=1):
                group.label += f" ({number})"


def _usual(groups: list[Group]) -> dict[str, str]:
    """The value that most systems have of each setting that every system has."""
    settings = [_settings(group.runs[0]) for group in groups]
    shared = set.intersection(*(set(each) for each in settings))
    found = {}
    for key in shared:
        counts = Counter(repr(each[key]) for each in settings).most_common(2)
        if len(counts) == 1 or counts[0][1] > counts[1][1]:
            found[key] = counts[0][0]
    return found


def _told(key: str, value: Any) -> str:
    text = "-".join(map(str, value)) if isinstance(value, list) else str(value)
    return {"units": f"J = {text}", "preset": text}.get(key, f"{key} {text}")


def _title(built: list[Section]) -> None:
    """The benchmark; where it stands twice, with its preset, its tasks or a number."""
    for section in built:
        same = [other for other in built if other.benchmark == section.benchmark]
        if len(same) == 1:
            section.title = section.benchmark
            continue
        presets = [{run["preset"] for run in other.runs} for other in same]
        apart = all(len(each) == 1 for each in presets) and len(set.union(*presets)) == len(same)
        lengths = {other.tasks for other in same}
        if apart:
            section.title = f"{section.benchmark} {section.runs[0]['preset']}"
        elif len(lengths) == len(same):
            section.title = f"{section.benchmark} {section.tasks} tasks"
        else:
            section.title = f"{section.benchmark} ({same.index(section) + 1})"
