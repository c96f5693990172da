"""Runs in worker processes of this machine: a fresh process, and one thread, for every run."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

from rivals.experiment.grid.engine import FAILED, STOPPED, Ended, Event, GridJob, event

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # `python -m` would import modules of the working folder first


class Worker:
    """The process of one run; it stops when its input closes, so it never outlives its parent."""

    def __init__(self, job: GridJob) -> None:
        self.run = job.run
        self.unread = b""
        self.asked = False
        self.over = False
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it ends
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rivals.experiment.grid.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env={**os.environ, **dict.fromkeys(THREADS, "1"), **SAFE_PATH},
            start_new_session=True,  # Ctrl-C is for the parent, which asks the workers to stop
        )  # fmt: skip
        assert self.process.stdin
        assert self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        with suppress(BrokenPipeError):
            self.input.write((json.dumps(job.to_dict()) + "\n").encode())
            self.input.flush()

    def stop(self) -> None:
        """Ask it to save and stop."""
        self.asked = True
        with suppress(BrokenPipeError):
            self.input.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def listen(self) -> list[Event]:
        """Its next messages; waits for at least one. The last event is that it ended."""
        piece = os.read(self.output.fileno(), 65536)
        lines = (self.unread + piece).split(b"\n")
        self.unread = lines.pop()
        events = [event(self.run, json.loads(line)) for line in lines]
        self.over = any(isinstance(each, Ended) for each in events)
        if not piece and not self.over:
            events.append(self._died())
            self.over = True
        if self.over:
            self.process.wait()
            self._close()
        return events

    def _died(self) -> Ended:
        """The process ended without a message: the reason that the system and its errors give."""
        status = self.process.wait()
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 4096))
        last = (self.errors.read().decode(errors="replace").strip().splitlines() or [""])[-1]
        if status < 0:
            name = signal.Signals(-status).name
            hint = "; perhaps memory ran out" if name == "SIGKILL" else ""
            return Ended(self.run, FAILED, f"its process was ended by {name}{hint}.")
        if self.asked:
            return Ended(self.run, STOPPED)
        return Ended(self.run, FAILED, f"its process ended with status {status}: {last}")

    def _close(self) -> None:
        with suppress(BrokenPipeError):
            self.input.close()
        self.output.close()
        self.errors.close()


class Processes:
    """An engine of worker processes."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.listening = selectors.DefaultSelector()

    def start(self, job: GridJob) -> None:
        worker = Worker(job)
        self.listening.register(worker.output, selectors.EVENT_READ, worker)

    def events(self, timeout: float) -> list[Event]:
        if not self.listening.get_map():
            time.sleep(timeout)
            return []
        found: list[Event] = []
        for key, _ in self.listening.select(timeout):
            worker: Worker = key.data
            output = worker.output
            events = worker.listen()
            if worker.over:
                self.listening.unregister(output)
            found += events
        return found

    def _workers(self) -> list[Worker]:
        return [key.data for key in list(self.listening.get_map().values())]

    def stop(self) -> None:
        for worker in self._workers():
            worker.stop()

    def close(self) -> None:
        for worker in self._workers():
            self.listening.unregister(worker.output)
            worker.kill()
        self.listening.close()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
