"""Finished runs, read from their folders: results.json, config.yaml, measured.json, tickets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import quote

import yaml

from rivals.errors import RivalsError
from rivals.experiment.result_file import read_results
from rivals.io.files import read_json


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What the files of one run say."""

    path: Path
    results: dict[str, Any]
    config: dict[str, Any]
    measured: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.results[key]

    @property
    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = self.results["summary"]
        return summary

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

    @cached_property
    def layers(self) -> list[int]:
        """The blocks of each layer that competes."""
        facts = self._ticket(self.results["tasks"][0]["name"])
        return [len(layer) for layer in facts["winners"]]

    def _ticket(self, task: str) -> dict[str, Any]:
        folder = quote(task, safe=" ").replace(".", "%2E")
        return read_json(self.path / "tickets" / folder / "ticket.json", "ticket")

    @cached_property
    def winners(self) -> list[list[int]]:
        """The winner of every block, a row a task, from the tickets; empty where there are none."""
        rows: list[list[int]] = []
        for task in self.results["tasks"]:
            try:
                winners = self._ticket(task["name"])["winners"]
                rows.append([int(unit) for layer in winners for unit in layer])
            except (RivalsError, LookupError, TypeError, ValueError):
                return []
        return rows if rows and rows[0] and len({len(row) for row in rows}) == 1 else []


def find(paths: Iterable[Path]) -> list[Path]:
    """The folders of runs: those named, and all that lie in a folder that is named."""
    found: dict[Path, Path] = {}
    for path in paths:
        try:
            inside = sorted(path.iterdir())
        except NotADirectoryError as error:
            raise RivalsError(f"{path} is no folder; name folders of runs.") from error
        except OSError as error:
            raise RivalsError(f"{path} cannot be read ({error.strerror}).") from error
        here = [path] if _is_run(path) else [each for each in inside if _is_run(each)]
        if not here:
            raise RivalsError(
                f"{path} holds no run; name folders that `rivals run` or `rivals compare` has made."
            )
        found |= {each.resolve(): each for each in here}
    return list(found.values())


def read(paths: Iterable[Path], finished_only: bool = False) -> list[FinishedRun]:
    """All runs; one that is not finished is refused, or left out if `finished_only`."""
    runs = []
    for path in find(paths):
        if not (path / "results.json").exists():
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


def _is_run(path: Path) -> bool:
    return (path / "results.json").is_file() or (path / "config.yaml").is_file()


def _read(path: Path) -> FinishedRun:
    results = read_results(path / "results.json")
    if results["complete"] and not (results["tasks"] and results["summary"]):
        raise RivalsError(f"The results file {path / 'results.json'} is damaged: it has no tasks.")
    lengths = [len(row) for row in results["matrix"]]
    if results["complete"] and lengths != [*range(1, len(results["tasks"]) + 1)]:
        raise RivalsError(
            f"The results file {path / 'results.json'} is damaged: "
            "its matrix has not one row a task."
        )
    measured = path / "measured.json"
    return FinishedRun(
        path, results, _config(path / "config.yaml"),
        read_json(measured, "measurements") if measured.exists() else {},
    )  # fmt: skip


def _config(path: Path) -> dict[str, Any]:
    """The settings of a run; a folder with results alone has none."""
    if not path.exists():
        return {}
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise RivalsError(f"The settings file {path} is damaged.") from error
    if not isinstance(content, dict):
        raise RivalsError(f"The settings file {path} is damaged: it holds no settings.")
    return content
