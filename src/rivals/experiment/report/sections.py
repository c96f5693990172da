"""Every run in its group, every group in its section."""

from __future__ import annotations

import json
from collections import defaultdict

from rivals.errors import RivalsError
from rivals.experiment.report.groups import Group, Section, rank, settings_of
from rivals.experiment.report.labels import label_groups
from rivals.experiment.report.report_runs import FinishedRun


def sections(runs: list[FinishedRun]) -> list[Section]:
    """Every run in its group, every group in its section, all in a fixed order."""
    found: dict[tuple[str, str, int], dict[str, list[FinishedRun]]] = defaultdict(dict)
    for run in sorted(runs, key=lambda run: (run["benchmark"], run["seed"], str(run.path))):
        place = (run["benchmark"], run["subset"], len(run["tasks"]))
        found[place].setdefault(_key(run), []).append(run)
    built = []
    for (benchmark, subset, tasks), groups in found.items():
        section = Section(benchmark, subset, tasks, [Group(runs) for runs in groups.values()])
        section.groups.sort(key=rank)
        for group in section.groups:
            _no_seed_twice(group)
        label_groups(section.groups)
        built.append(section)
    _title(built)
    return sorted(built, key=lambda section: section.title)


def _key(run: FinishedRun) -> str:
    return json.dumps([run["method"], settings_of(run)], sort_keys=True, default=str)


def _no_seed_twice(group: Group) -> None:
    seen: dict[int, FinishedRun] = {}
    for run in group.runs:
        other = seen.setdefault(run["seed"], run)
        if other is not run:
            raise RivalsError(
                f"{other.path} and {run.path} are the same run (seed {run['seed']}); "
                "leave one of them out."
            )


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
