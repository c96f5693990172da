"""Runs on a Ray cluster (extra [cluster]): the same worker processes, started by Ray's tasks.

Every node needs rivals, the data and the folder of the runs, under the same paths: results and
checkpoints are written there, so a run whose node is lost goes on elsewhere from its checkpoint.
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.experiment.grid.engine import BUSY, FAILED, STOPPED, Ended, Event, GridJob, Progress
from rivals.experiment.grid.grid_file import PlannedRun
from rivals.experiment.grid.process_engine import Worker, cores

RETRIES = 3  # of a run whose node or worker is lost
HANDOVER = 60.0  # seconds for the process of a lost worker to save and let go of the folder


class Board:
    """An actor that keeps the latest progress of every run."""

    def __init__(self) -> None:
        self.latest: dict[PlannedRun, Progress] = {}

    def post(self, progress: Progress) -> None:
        self.latest[progress.run] = progress

    def take(self) -> list[Progress]:
        taken, self.latest = list(self.latest.values()), {}
        return taken


def carry_out(job: GridJob, place: dict[str, str], board: Any) -> Ended:
    """A task of Ray: one run in a process of its own, which stops when this worker is lost."""
    if not job.out.is_dir():
        reason = f"{job.out} is not there on {platform.node()}; put --out on a shared folder."
        return Ended(job.run, FAILED, reason)
    os.environ.update({key: value for key, value in place.items() if key != "cwd"})
    with suppress(OSError):
        os.chdir(place["cwd"])
    since = time.monotonic()
    while True:
        ended = _once(job, board)
        if ended.status != BUSY or time.monotonic() - since > HANDOVER:
            return ended
        time.sleep(0.5)


def _once(job: GridJob, board: Any) -> Ended:
    worker = Worker(job)
    try:
        while True:
            for event in worker.listen():
                if isinstance(event, Ended):
                    return event
                board.post.remote(event)
    except BaseException:  # cancelled: the process saves, and the task ends with it
        worker.stop()
        while not worker.over:
            worker.listen()
        raise


class RayCluster:
    """An engine on a cluster that is there already, or on this machine."""

    def __init__(self, address: str | None, workers: int | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise RivalsError(
                "--engine ray needs Ray, which is not installed; pip install 'rivals[cluster]'."
            ) from error
        self.ray = ray
        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if address is None:
            options |= {"num_cpus": workers or cores(), "include_dashboard": False}
        try:
            ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            said = str(error).strip().partition("\n")[0]
            raise RivalsError(f"No Ray cluster answers at {address} ({said}).") from error
        there = int(ray.cluster_resources().get("CPU", 1))
        self.workers = max(1, min(workers or there, there))
        self.board = ray.remote(num_cpus=0)(Board).remote()
        self.task = ray.remote(num_cpus=1, max_retries=RETRIES, max_calls=1)(carry_out)
        keep = ("RIVALS_DATA", "PYTHONPATH")
        self.place = {key: os.environ[key] for key in keep if key in os.environ}
        self.place["cwd"] = str(Path.cwd())
        self.running: dict[Any, PlannedRun] = {}
        self.asked = False

    def start(self, job: GridJob) -> None:
        reference = self.task.options(name=job.run.folder).remote(job, self.place, self.board)
        self.running[reference] = job.run

    def events(self, timeout: float) -> list[Event]:
        if not self.running:
            time.sleep(timeout)
            return []
        done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=timeout)
        found: list[Event] = list(self.ray.get(self.board.take.remote()))
        return found + [self._ended(reference) for reference in done]

    def _ended(self, reference: Any) -> Ended:
        run = self.running.pop(reference)
        try:
            ended: Ended = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            if self.asked:
                return Ended(run, STOPPED)
            said = str(error).strip().partition("\n")[0]
            return Ended(run, FAILED, f"Ray lost its worker {RETRIES + 1} times: {said}")
        return ended

    def stop(self) -> None:
        self.asked = True
        for reference in self.running:
            self.ray.cancel(reference)

    def close(self) -> None:
        self.ray.shutdown()
