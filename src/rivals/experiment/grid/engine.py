"""An engine carries out runs: it starts them, reports what happens, and can stop them all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rivals.experiment.grid.grid_file import PlannedRun

FINISHED, STOPPED, BUSY, FAILED = "finished", "stopped", "busy", "failed"


@dataclass(frozen=True)
class GridJob:
    """A run and its place: all that a worker needs."""

    run: PlannedRun
    out: Path
    save_every: float = 30.0
    imports: tuple[str, ...] = ()  # of module:name, what its worker may import
    log: str = ""  # names of loggers, with commas
    log_every: int = 10  # steps

    def to_dict(self) -> dict[str, Any]:
        run = self.run
        return {
            "benchmark": run.benchmark, "method": run.method, "preset": run.preset,
            "seed": run.seed, "changes": list(run.changes), "on": run.on, "device": run.device,
            "folder": str(self.out / run.folder), "save_every": self.save_every,
            "imports": list(self.imports), "log": self.log, "log_every": self.log_every,
        }  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    run: PlannedRun
    task: str
    number: int  # of the task, from 1
    tasks: int
    share: float  # of the whole run, 0 to 1


@dataclass(frozen=True)
class Ended:
    """How a run ended: finished, stopped, busy (another process works on it) or failed."""

    run: PlannedRun
    status: str
    reason: str = ""


Event = Progress | Ended


class Engine(Protocol):
    """Runs at most `workers` jobs at a time."""

    @property
    def workers(self) -> int: ...

    def start(self, job: GridJob) -> None:
        """Start a run; `events` reports what happens."""

    def events(self, timeout: float) -> list[Event]:
        """What has happened, after at most `timeout` seconds."""

    def stop(self) -> None:
        """Ask every run to save and stop; `events` reports when each has."""

    def close(self) -> None:
        """End what still runs, at once."""


def event(run: PlannedRun, message: dict[str, Any]) -> Event:
    """A worker's message as an event."""
    if "ended" in message:
        return Ended(run, message["ended"], message.get("reason", ""))
    return Progress(run, message["task"], message["number"], message["tasks"], message["share"])
