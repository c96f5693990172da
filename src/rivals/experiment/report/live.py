"""A report that follows runs while they are made: written again whenever one of them advances."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rivals.errors import RivalsError
from rivals.experiment.grid_state import GridState
from rivals.experiment.report.report_runs import STEPS, FinishedRun, RunFilter, find, read_all
from rivals.experiment.report.tables import Cell, Column, Table
from rivals.experiment.report.write import write

POLL_SECONDS = 1.0  # between two looks at the runs
QUIET_SECONDS = 10.0  # without a change, after which a grid that nobody works on is over
SHARE = 0.2  # of the time, at most, that is spent on writing
WATCHED = ("results.json", str(STEPS))


def follow(
    paths: Sequence[Path],
    out: Path,
    title: str,
    only: RunFilter | None = None,
    asked_to_stop: Callable[[], bool] = lambda: False,
    written: Callable[[list[FinishedRun]], None] = lambda runs: None,
) -> list[FinishedRun]:
    """Keep the report in `out` up to date until every run is finished, nobody works on the others
    any more, or `asked_to_stop`. The page asks for itself again until then."""
    before, changed, runs = None, time.monotonic(), list[FinishedRun]()
    while not asked_to_stop():
        now = _marks(paths)
        if now != before:
            before, changed, begun = now, time.monotonic(), time.monotonic()
            runs = _read(paths, only) or runs
            if _over(paths, runs, 0.0):
                break
            _write(runs, out, title, live=True)
            written(runs)
            _wait((time.monotonic() - begun) / SHARE, asked_to_stop)
        if _over(paths, runs, time.monotonic() - changed) and _marks(paths) == before:
            break
        _wait(POLL_SECONDS, asked_to_stop)
    runs = _read(paths, only) or runs
    _write(runs, out, title, live=False)
    return runs


def running(runs: Sequence[FinishedRun]) -> Table:
    """How far the runs are that are not finished."""
    columns = [
        Column("run", "text"), Column("tasks done", "count"), Column("step", "count"),
        Column("training loss", "loss", about="of the last step that was logged as CSV"),
        Column("training accuracy %", about="of the last step that was logged as CSV"),
        Column("task known %", about="mean accuracy over the tasks so far"),
    ]  # fmt: skip
    table = Table("running", "Runs that are not finished", columns)
    for run in runs:
        accuracy = run.results.get("summary", {}).get("accuracy", {}).get("task_known")
        table.rows.append([
            Cell(text=run.name), Cell(run.done), *(_last(run, name) for name in
            ("step", "loss", "accuracy")), Cell(accuracy),
        ])  # fmt: skip
    return table


def _last(run: FinishedRun, column: str) -> Cell:
    values = run.steps.get(column, np.empty(0))
    values = values[~np.isnan(values)]
    return Cell(float(values[-1])) if len(values) else Cell()


def _write(runs: list[FinishedRun], out: Path, title: str, live: bool) -> None:
    done = [run for run in runs if run.complete]
    working = [run for run in runs if not run.complete]
    write(done, out, title, running(working), working, live)


def _read(paths: Sequence[Path], only: RunFilter | None) -> list[FinishedRun]:
    """The runs as they are; none where a grid has only just begun, or a file is being replaced."""
    try:
        return read_all(paths, only)
    except RivalsError:
        if any(GridState.read(path).at_work for path in paths if path.is_dir()):
            return []
        raise


def _marks(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """What changes when a run advances: sizes and times of its files."""
    try:
        runs = find(paths)
    except RivalsError:
        runs = []
    files = [path / name for path in runs if path.is_dir() for name in WATCHED]
    found = dict.fromkeys(runs, (0, 0))
    for file in files:
        try:
            facts = file.stat()
        except OSError:
            continue
        found[file] = (facts.st_size, facts.st_mtime_ns)
    return found


def _over(paths: Sequence[Path], runs: Sequence[FinishedRun], quiet: float) -> bool:
    """Whether nothing more will come."""
    states = [GridState.read(path) for path in paths if path.is_dir()]
    there = {path.name for path in _marks(paths)}  # also of runs that the filter leaves out
    planned = {name for state in states for name in state.runs}
    if runs and all(run.complete for run in runs) and planned <= there:
        return True
    return bool(planned) and not any(s.at_work for s in states) and quiet > QUIET_SECONDS


def _wait(seconds: float, asked_to_stop: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not asked_to_stop() and (left := end - time.monotonic()) > 0:
        time.sleep(min(0.1, left))
