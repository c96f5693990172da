"""The loop over the runs of a grid: every worker busy, nothing run twice."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

from rivals.errors import RivalsError, unknown
from rivals.experiment.grid.engine import (
    BUSY,
    FAILED,
    FINISHED,
    STOPPED,
    Ended,
    Engine,
    GridJob,
    Progress,
)
from rivals.experiment.grid.grid_file import PlannedRun, plan
from rivals.experiment.grid.run_status import RunStatus, read_status
from rivals.experiment.grid_state import GridState
from rivals.io.files import make_folder
from rivals.learn.training_log import EVERY, TrainingLog
from rivals.logs.open_loggers import log_names, open_loggers
from rivals.registry import allowed_imports, imports_allowed

KEPT, WAITING = "kept", "waiting"  # was finished before; was not started
ENGINES = ("processes", "ray")
POLL_SECONDS = 0.2  # between two looks at the workers
RETRY_SECONDS = 1.0  # before a run is tried again that another process works on


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, kept, failed, stopped or waiting; and what it reached."""

    run: PlannedRun
    status: str
    reason: str = ""
    accuracy: float | None = None  # task known, in percent
    seconds: float | None = None  # of training, over all the times it was resumed
    kilobytes: float | None = None  # needed to continue training
    ancestor: str = ""  # the trained network that it starts from; empty: random weights


class ComparisonDisplay(Protocol):
    """Progress callbacks of a comparison."""

    def started(self, run: PlannedRun) -> None: ...
    def progressed(self, progress: Progress) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...
    def stopping(self) -> None: ...


class NoDisplay:
    """Callbacks that do nothing."""

    def started(self, run: PlannedRun) -> None: ...
    def progressed(self, progress: Progress) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...
    def stopping(self) -> None: ...


def compare(
    benchmarks: str | Sequence[str],
    methods: str | Sequence[str] = "twta",
    seeds: int | Sequence[int] = (0,),
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] = "runs/compare",
    workers: int | None = None,
    *,
    on: str = "test",
    device: str = "cpu",
    engine: str = "processes",
    address: str | None = None,
    save_every: float = 30.0,
    log: str | None = None,
    log_every: int = EVERY,
) -> list[Outcome]:
    """Run every method with every seed on every benchmark; one folder each below `out`.

    Every run is a process of its own, as many at a time as there are `workers` (default: cores).
    Finished runs are kept, unfinished ones resume. With `on="validation"` accuracy is measured on
    validation images, to choose settings by. `log` names loggers, such as "csv": every run has a
    log in its own folder.

    >>> import rivals
    >>> small = {"tasks": 1, "epochs": 1, "architecture": "mlp", "widths": (8, 8), "units": 2}
    >>> found = rivals.compare("digits", ["finetune"], settings=small, out="runs/first", workers=1)
    >>> [(each.run.method, each.status) for each in found]
    [('finetune', 'finished')]
    """
    benchmarks = [benchmarks] if isinstance(benchmarks, str) else list(benchmarks)
    methods = [methods] if isinstance(methods, str) else list(methods)
    with imports_allowed([*benchmarks, *methods, *(settings or {}).values()]):
        runs = plan(benchmarks, methods, seeds, preset, settings or {}, on=on, device=device)
        comparison = run_grid(
            runs, Path(out), workers, engine, address, save_every, log=log, log_every=log_every
        )
    return [comparison.outcomes[run] for run in runs]


def run_grid(
    runs: list[PlannedRun],
    out: Path,
    workers: int | None = None,
    engine: str = "processes",
    address: str | None = None,
    save_every: float = 30.0,
    display: ComparisonDisplay | None = None,
    asked_to_stop: Callable[[], bool] = lambda: False,
    log: str | None = None,
    log_every: int = EVERY,
) -> Comparison:
    """Carry out `runs`; the comparison that is returned has their outcomes."""
    if not save_every >= 0:
        raise RivalsError(f"save_every is {save_every}, but must not be negative.")
    folder = Path(os.path.abspath(out))
    TrainingLog(open_loggers(log, folder), log_every)  # refused before anything is written
    check_folder(folder)
    chosen = make_engine(engine, address, workers, len(runs))
    comparison = Comparison(
        runs, folder, chosen, display or NoDisplay(), save_every, asked_to_stop,
        log=",".join(log_names(log)), log_every=log_every,
    )  # fmt: skip
    state = GridState(tuple(run.folder for run in runs), at_work=True)
    state.write(folder)
    try:
        comparison.go()
    finally:
        chosen.close()
        replace(state, at_work=False).write(folder)
    return comparison


def check_folder(folder: Path) -> None:
    """Make the folder of the runs; one that cannot hold them is refused."""
    if folder.exists() and not folder.is_dir():
        raise RivalsError(f"{folder} is a file; --out needs a folder.")
    if (folder / "config.yaml").exists():
        raise RivalsError(f"{folder} is the folder of a run; choose another --out for many.")
    make_folder(folder)
    if not os.access(folder, os.W_OK):
        raise RivalsError(f"{folder} cannot be written to; choose another --out.")


def make_engine(name: str, address: str | None, workers: int | None, runs: int) -> Engine:
    """The engine `processes` or `ray`."""
    from rivals.experiment.grid.process_engine import Processes, cores

    if workers is not None and workers < 1:
        raise RivalsError(f"workers is {workers}, but must be at least 1.")
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "ray":
        from rivals.experiment.grid.ray_engine import RayCluster

        return RayCluster(address, workers)
    if address is not None:
        raise RivalsError("An address is that of a Ray cluster; add --engine ray.")
    return Processes(min(workers or cores(), runs))


@dataclass
class Comparison:
    """A grid, the folder of its runs, and the engine that carries them out."""

    runs: list[PlannedRun]
    out: Path
    engine: Engine
    display: ComparisonDisplay
    save_every: float = 30.0
    asked_to_stop: Callable[[], bool] = lambda: False
    log: str = ""  # names of loggers
    log_every: int = EVERY
    outcomes: dict[PlannedRun, Outcome] = field(default_factory=dict)
    seconds: dict[tuple[str, ...], list[float]] = field(  # of finished runs, by kind
        default_factory=lambda: defaultdict(list)
    )
    wall: float = 0.0  # seconds from start to end
    worked: float = 0.0  # seconds of all workers together

    def go(self) -> list[Outcome]:
        """Run what is not finished; the outcomes in the order of the grid."""
        begun = time.monotonic()
        waiting = [run for run in self.runs if not self._is_finished(run)]
        running: dict[PlannedRun, float] = {}
        resting: dict[PlannedRun, float] = {}  # another process works there: try again when
        stopping = False
        while running or ((waiting or resting) and not stopping):
            if self.asked_to_stop() and not stopping:
                stopping = True
                self.display.stopping()
                self.engine.stop()
            now = time.monotonic()
            waiting += [run for run, until in resting.items() if until <= now]
            resting = {run: until for run, until in resting.items() if until > now}
            while waiting and len(running) < self.engine.workers and not stopping:
                run = next_run(waiting, self.seconds)
                waiting.remove(run)
                if self._is_finished(run):  # by another process, meanwhile
                    continue
                running[run] = time.monotonic()
                job = GridJob(
                    run, self.out, self.save_every, tuple(allowed_imports()), self.log,
                    self.log_every,
                )  # fmt: skip
                self.engine.start(job)
                self.display.started(run)
            for event in self.engine.events(POLL_SECONDS):
                if isinstance(event, Progress):
                    self.display.progressed(event)
                    continue
                self.worked += time.monotonic() - running.pop(event.run)
                if event.status == BUSY and not stopping:
                    resting[event.run] = time.monotonic() + RETRY_SECONDS
                else:
                    self._end(event)
        for run in [*waiting, *resting]:
            self._record(Outcome(run, WAITING))
        self.wall = time.monotonic() - begun
        return [self.outcomes[run] for run in self.runs]

    @property
    def busy(self) -> float:
        """The share of their time, in percent, that the workers were at work."""
        return 100 * self.worked / (self.wall * self.engine.workers) if self.wall else 0.0

    def _is_finished(self, run: PlannedRun) -> bool:
        """Whether there is nothing to do: the run is finished, or another run has its folder."""
        try:
            found = read_status(run, self.out)
        except RivalsError as error:
            self._record(Outcome(run, FAILED, str(error)))
            return True
        if found.finished:
            self._record(_outcome(run, KEPT, "", found))
        return found.finished

    def _end(self, event: Ended) -> None:
        status, reason, found = event.status, event.reason, RunStatus()
        if status == FINISHED:
            try:
                found = read_status(event.run, self.out)
            except RivalsError as error:
                status, reason = FAILED, str(error)
        elif status == BUSY:
            status = WAITING
        elif status == STOPPED and not self.asked_to_stop():
            status, reason = FAILED, "it was stopped from outside; the next time it continues."
        self._record(_outcome(event.run, status, reason, found))

    def _record(self, outcome: Outcome) -> None:
        if outcome.seconds is not None:
            self.seconds[outcome.run.kind].append(outcome.seconds)
        self.outcomes[outcome.run] = outcome
        self.display.ended(outcome)


def next_run(
    waiting: Sequence[PlannedRun], seconds: Mapping[tuple[str, ...], list[float]]
) -> PlannedRun:
    """The run to start: of a kind that nothing is known of, in the order of the grid; when all
    kinds were timed, the longest."""
    return max(
        waiting, key=lambda run: mean(seconds[run.kind]) if run.kind in seconds else math.inf
    )


def _outcome(run: PlannedRun, status: str, reason: str, found: RunStatus) -> Outcome:
    return Outcome(
        run, status, reason, found.accuracy, found.seconds, found.kilobytes, found.ancestor
    )
