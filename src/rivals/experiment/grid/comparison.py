"""The loop over the runs of a grid: the longest first, every worker busy, nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rivals.errors import RivalsError
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
from rivals.experiment.grid.expected import Expected, longest_first
from rivals.experiment.grid.grid_file import Planned
from rivals.experiment.grid.run_status import RunStatus, look

KEPT, WAITING = "kept", "waiting"  # was finished before; was not begun
PATIENCE = 0.2  # seconds between two looks at what happens
PAUSE = 1.0  # seconds before a run is tried again that another process works on


@dataclass(frozen=True)
class Outcome:
    """What became of a run: finished, kept, failed, stopped or waiting."""

    run: Planned
    how: str
    reason: str = ""
    accuracy: float | None = None
    seconds: float | None = None  # of training, over all the times it was resumed


class ComparisonDisplay(Protocol):
    """Whoever looks on: a display, or nobody."""

    def began(self, run: Planned) -> None: ...
    def goes_on(self, progress: Progress) -> None: ...
    def ended(self, outcome: Outcome) -> None: ...
    def stopping(self) -> None: ...


@dataclass
class Comparison:
    """A grid, the folder it goes to, and the engine that carries it out."""

    runs: list[Planned]
    out: Path
    engine: Engine
    onlooker: ComparisonDisplay
    save_every: float = 30.0
    asked_to_stop: Callable[[], bool] = lambda: False
    expected: Expected = field(default_factory=Expected)
    outcomes: dict[Planned, Outcome] = field(default_factory=dict)
    wall: float = 0.0  # seconds of the whole
    worked: float = 0.0  # seconds of all workers together

    def go(self) -> list[Outcome]:
        """Run what is not finished; the outcomes in the order of the grid."""
        begun = time.monotonic()
        waiting = self._to_do()
        running: dict[Planned, float] = {}
        resting: dict[Planned, float] = {}  # another process is at work there: until when
        stopping = False
        while running or ((waiting or resting) and not stopping):
            if self.asked_to_stop() and not stopping:
                stopping = True
                self.onlooker.stopping()
                self.engine.stop()
            now = time.monotonic()
            waiting += [run for run, until in resting.items() if until <= now]
            resting = {run: until for run, until in resting.items() if until > now}
            while waiting and len(running) < self.engine.workers and not stopping:
                run = longest_first(waiting, self.expected)[0]
                waiting.remove(run)
                if self._finished(run):  # by another process, meanwhile
                    continue
                running[run] = time.monotonic()
                self.engine.start(GridJob(run, self.out, self.save_every))
                self.onlooker.began(run)
            for event in self.engine.events(PATIENCE):
                if isinstance(event, Progress):
                    self.onlooker.goes_on(event)
                    continue
                self.worked += time.monotonic() - running.pop(event.run)
                if event.how == BUSY and not stopping:
                    resting[event.run] = time.monotonic() + PAUSE
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

    def _to_do(self) -> list[Planned]:
        """Runs that are not finished; from those that are, how long the others will take."""
        return [run for run in self.runs if not self._finished(run)]

    def _finished(self, run: Planned) -> bool:
        """Whether there is nothing to do for a run: it is finished, or its folder is another's."""
        try:
            found = look(run, self.out)
        except RivalsError as error:
            self._record(Outcome(run, FAILED, str(error)))
            return True
        if found.finished:
            self._learn(run, found)
            self._record(Outcome(run, KEPT, "", found.accuracy, found.seconds))
        return found.finished

    def _end(self, event: Ended) -> None:
        how, reason, found = event.how, event.reason, RunStatus()
        if how == FINISHED:
            try:
                found = look(event.run, self.out)
            except RivalsError as error:
                how, reason = FAILED, str(error)
            self._learn(event.run, found)
        elif how == BUSY:
            how = WAITING
        elif how == STOPPED and not self.asked_to_stop():
            how, reason = FAILED, "it was stopped from outside; it goes on the next time."
        self._record(Outcome(event.run, how, reason, found.accuracy, found.seconds))

    def _learn(self, run: Planned, found: RunStatus) -> None:
        if found.seconds is not None:
            self.expected.learn(run, found.seconds)

    def _record(self, outcome: Outcome) -> None:
        self.outcomes[outcome.run] = outcome
        self.onlooker.ended(outcome)
