"""Finished runs, read from run folders or from JSON files that hold one run each.

A run folder has results.json, config.yaml and measured.json. A JSON file of a run has the content
of results.json, with the other two under `config` and `measured`. Settings are only shown, never
resolved, so runs of older versions can be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from rivals.errors import RivalsError
from rivals.experiment.result_file import read_results
from rivals.io.reading import read_json, read_yaml
from rivals.io.seal import unsealed


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The content of one run."""

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


def read(paths: Iterable[Path], finished_only: bool = False) -> list[FinishedRun]:
    """All runs; one that is not finished is refused, or left out if `finished_only`."""
    runs = []
    for path in find(paths):
        if path.is_dir() and not (path / "results.json").exists():
            reason = "no task is done"
        else:
            run = _read(path)
            if run["complete"]:
                runs.append(run)
                continue
            reason = f"{len(run['tasks'])} tasks are done"
        if not finished_only:
            raise RivalsError(
                f"{path} is not finished ({reason}); go on with it by --resume, "
                "or leave out such runs by --finished-only."
            )
    if not runs:
        raise RivalsError("None of these runs is finished; there is nothing to report.")
    return runs


def _inside(path: Path) -> list[Path]:
    return [] if path.is_file() else sorted(path.iterdir())


def _is_run(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".json" and not path.name.startswith(".")
    return (path / "results.json").is_file() or (path / "config.yaml").is_file()


def _read(path: Path) -> FinishedRun:
    file = path if path.is_file() else path / "results.json"
    results = read_results(file)
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
