"""Who carries runs out: an engine starts runs, tells what becomes of them, can stop them all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rivals.experiment.grid.grid_file import Planned

FINISHED, STOPPED, BUSY, FAILED = "finished", "stopped", "busy", "failed"


@dataclass(frozen=True)
class GridJob:
    """A run and where it goes: all that a worker is told."""

    run: Planned
    out: Path
    save_every: float = 30.0

    def to_dict(self) -> dict[str, Any]:
        run = self.run
        return {
            "benchmark": run.benchmark, "method": run.method, "preset": run.preset,
            "seed": run.seed, "changes": list(run.changes),
            "folder": str(self.out / run.folder), "save_every": self.save_every,
        }  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    run: Planned
    task: str
    number: int  # of the task, from 1
    tasks: int
    share: float  # of the whole run, 0 to 1


@dataclass(frozen=True)
class Ended:
    """What became of a run: finished, stopped, busy (another process is at work) or failed."""

    run: Planned
    how: str
    reason: str = ""


Event = Progress | Ended


class Engine(Protocol):
    """Runs at most `workers` jobs at a time."""

    @property
    def workers(self) -> int: ...

    def start(self, job: GridJob) -> None:
        """Begin a run; what happens is told by `events`."""

    def events(self, patience: float) -> list[Event]:
        """What has happened, after at most `patience` seconds."""

    def stop(self) -> None:
        """Ask every run to save and stop; `events` tells when each has."""

    def close(self) -> None:
        """End whatever still runs, at once."""


def event(run: Planned, message: dict[str, Any]) -> Event:
    """A worker's message as an event."""
    if "ended" in message:
        return Ended(run, message["ended"], message.get("reason", ""))
    return Progress(run, message["task"], message["number"], message["tasks"], message["share"])
