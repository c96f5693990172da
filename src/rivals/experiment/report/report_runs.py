"""Finished runs, read from run folders or from JSON files that hold one run each.

A run folder has results.json, config.yaml and measured.json. A JSON file of a run has the content
of results.json, with the other two under `config` and `measured`. Settings are only shown, never
resolved, so runs of older versions can be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.experiment.result_file import read_results
from rivals.io.reading import check_no_links, read_json, read_yaml
from rivals.io.seal import unsealed
from rivals.logs.csv_log import read_log

STEPS = Path("log", "steps.csv")  # of a run that was made with --log csv


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The content of one run; of one that is at work, what there is of it."""

    path: Path  # of its folder or of its JSON file
    results: dict[str, Any]
    config: dict[str, Any]
    measured: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.results[key]

    @property
    def name(self) -> str:
        """The name of its folder, or of its file without the ending."""
        path = self.path.resolve()
        return path.stem if path.is_file() else path.name

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = self.results["summary"]
        return summary

    @property
    def ancestor(self) -> str:
        """The network that was trained before, where the run started from one."""
        return str(self.results.get("ancestor", {}).get("name", ""))

    @property
    def units(self) -> int | None:
        """J, the rivals in a block, of a method whose units compete."""
        if self.results["tasks"][0].get("units"):
            return int(self.results["tasks"][0]["units"][-1])
        return None

    @property
    def seconds(self) -> float | None:
        total = self.measured.get("total_train_seconds")
        return float(total) if isinstance(total, int | float) else None

    @property
    def peak_memory(self) -> float | None:
        peak = self.measured.get("peak_memory_bytes")
        return float(peak) if isinstance(peak, int | float) and peak else None

    @property
    def complete(self) -> bool:
        return bool(self.results.get("complete"))

    @property
    def done(self) -> int:
        """Tasks that are learned."""
        return len(self.results.get("tasks", []))

    @cached_property
    def steps(self) -> dict[str, NDArray[np.float64]]:
        """The log of its training steps, a column each; empty where nothing was logged as CSV."""
        path = self.path / STEPS
        if not self.path.is_dir() or not os.path.lexists(path):
            return {}
        check_no_links(self.path, path, "log")
        found = read_log(path)
        return found if len(found["step"]) and "task" in found else {}

    def curves(self, column: str) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Of each task: steps since it began, and what was logged of them."""
        if column not in self.steps:
            return []
        found = []
        for task in np.unique(self.steps["task"]):
            here = (self.steps["task"] == task) & ~np.isnan(self.steps[column])
            if here.any():
                begun = self.steps["step"][self.steps["task"] == task].min()
                found.append((self.steps["step"][here] - begun, self.steps[column][here]))
        return found

    def of_tickets(self, fact: str) -> float:
        """The mean over tasks of the weights, bytes or MACs of a ticket."""
        return float(mean(task["ticket"][fact] for task in self.results["tasks"]))

    @property
    def layers(self) -> list[int]:
        """The number of blocks in each layer that competes."""
        return [len(layer) for layer in self.results["tasks"][0].get("winners", [])]

    @cached_property
    def winners(self) -> list[list[int]]:
        """The winner of every block, one row per task; empty if the method has no winners."""
        rows = [
            [unit for layer in task.get("winners", []) for unit in layer]
            for task in self.results["tasks"]
        ]
        return rows if rows and rows[0] and len({len(row) for row in rows}) == 1 else []


@dataclass(frozen=True)
class RunFilter:
    """Which runs are wanted; an empty tuple takes all."""

    benchmark: tuple[str, ...] = ()
    method: tuple[str, ...] = ()
    preset: tuple[str, ...] = ()

    @classmethod
    def of(cls, benchmark: str | None, method: str | None, preset: str | None) -> RunFilter:
        """From names with commas between."""
        given = {"benchmark": benchmark, "method": method, "preset": preset}
        return cls(**{kind: _names(kind, text) for kind, text in given.items()})

    def takes(self, facts: Mapping[str, Any]) -> bool:
        return all(not names or facts.get(kind) in names for kind, names in vars(self).items())

    def check(self, facts: Iterable[Mapping[str, Any]]) -> None:
        """A name that no run has is answered with those that there are."""
        facts = list(facts)
        for kind, names in vars(self).items():
            known = sorted({str(each.get(kind, "")) for each in facts})
            for name in names:
                if name not in known:
                    raise RivalsError(
                        f"No run has the {kind} '{name}'; known are {', '.join(known)}."
                    )


def _names(kind: str, text: str | None) -> tuple[str, ...]:
    names = tuple(word.strip() for word in (text or "").split(",") if word.strip())
    if text is not None and not names:
        raise RivalsError(f"--{kind} names nothing; write names with commas between.")
    return names


def find(paths: Iterable[Path]) -> list[Path]:
    """Run folders and JSON files of runs: those that are named, and those in a named folder."""
    found: dict[Path, Path] = {}
    for path in paths:
        try:
            if _is_run(path):  # a link that the user names is followed, one in a folder is not
                here = [Path(os.path.realpath(path)) if path.is_symlink() else path]
            else:
                here = [each for each in _inside(path) if _is_run(each)]
        except OSError as error:
            raise RivalsError(f"{path} cannot be read ({error.strerror}).") from error
        if not here:
            raise RivalsError(
                f"{path} holds no run; name run folders, JSON files of runs, or folders of them."
            )
        found |= {each.resolve(): each for each in here}
    return list(found.values())


def read(
    paths: Iterable[Path], finished_only: bool = False, only: RunFilter | None = None
) -> list[FinishedRun]:
    """The runs that `only` takes; one that is not finished is refused, or left out if
    `finished_only`."""
    runs = []
    for run in read_all(paths, only):
        if run.complete:
            runs.append(run)
        elif not finished_only:
            reason = f"{run.done} tasks are done" if run.done else "no task is done"
            raise RivalsError(
                f"{run.path} is not finished ({reason}); go on with it by --resume, "
                "or leave out such runs by --finished-only."
            )
    if not runs:
        raise RivalsError("None of these runs is finished; there is nothing to report.")
    return runs


def read_all(paths: Iterable[Path], only: RunFilter | None = None) -> list[FinishedRun]:
    """The runs that `only` takes, those that are not finished, too."""
    runs = [_read(path) for path in find(paths)]
    if only is not None:
        facts = [run.results or run.config for run in runs]
        only.check(facts)
        runs = [run for run, each in zip(runs, facts, strict=True) if only.takes(each)]
        if not runs:
            raise RivalsError("No run has all that --benchmark, --method and --preset ask for.")
    return runs


def _inside(path: Path) -> list[Path]:
    return [] if path.is_file() else sorted(path.iterdir())


def _is_run(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".json" and not path.name.startswith(".")
    return (path / "results.json").is_file() or (path / "config.yaml").is_file()


def _read(path: Path) -> FinishedRun:
    file = path if path.is_file() else path / "results.json"
    begun = path.is_file() or os.path.lexists(file)
    results = read_results(file) if begun else {}
    config, measured = results.pop("config", {}), results.pop("measured", {})
    if path.is_dir():
        config, stored = _config(path / "config.yaml"), path / "measured.json"
        measured = read_json(stored, "measurements") if os.path.lexists(stored) else {}
    return FinishedRun(path, results, config, measured)


def _config(path: Path) -> dict[str, Any]:
    """The settings of a run; a folder with results alone has none."""
    if not os.path.lexists(path):
        return {}
    content = read_yaml(path, "settings file")
    if not isinstance(content, dict):
        raise RivalsError(f"The settings file {path} is damaged: it holds no settings.")
    return unsealed(content, f"The settings file {path}")
