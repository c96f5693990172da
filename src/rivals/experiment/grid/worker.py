"""One run in a process of its own: `python -m rivals.experiment.grid.worker`.

The first line of its input is the job; it writes its progress as lines of JSON. When its input
ends, because it should stop or because the parent has ended, it saves and stops.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from rivals.errors import Interrupted, RivalsError
from rivals.experiment.loop import Run
from rivals.io.locks import BusyError
from rivals.learn.callbacks import Callback
from rivals.learn.method import StepResult
from rivals.learn.trainer import Trainer
from rivals.learn.training_log import TrainingLog
from rivals.logs.open_loggers import FOLDER, open_loggers
from rivals.registry import imports_allowed

EVERY = 0.25  # seconds between two progress messages


class ProgressWriter(Callback):
    """Tells the parent process how far the run is."""

    def __init__(self, channel: int) -> None:
        self.channel, self.tasks, self.task, self.written = channel, 1, "", 0.0

    def write(self, **message: Any) -> None:
        try:
            os.write(self.channel, (json.dumps(message) + "\n").encode())
        except BrokenPipeError:  # the parent has ended, so the input ends as well
            return

    def progress(self, done: int, within: float) -> None:
        number = min(done + 1, self.tasks)
        share = min(1.0, (done + within) / self.tasks)
        self.write(task=self.task, number=number, tasks=self.tasks, share=share)

    def on_task_begin(self, trainer: Trainer) -> None:
        self.task = trainer.task.name
        self.progress(self.done(trainer), 0.0)

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        now = time.monotonic()
        if now - self.written >= EVERY:
            self.written = now
            at = trainer.method.position
            within = min(1.0, at.step / at.steps) if at.steps else 0.0
            self.progress(self.done(trainer), within)

    def done(self, trainer: Trainer) -> int:
        return len([name for name in trainer.method.known if name != self.task])

    def on_results(self, run: Run) -> None:
        self.progress(len(run.results.content["tasks"]), 0.0)


def main() -> int:
    channel = os.dup(1)
    os.dup2(2, 1)  # what is printed must not disturb the messages
    job = json.loads(_first_line())
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    threading.Thread(target=_until_the_end, args=(stop,), daemon=True).start()
    writer = ProgressWriter(channel)
    status, reason = run_job(job, writer, stop)
    writer.write(ended=status, reason=reason)
    return 0


def run_job(job: dict[str, Any], writer: ProgressWriter, stop: threading.Event) -> tuple[str, str]:
    """Carry out a job; its status at the end, and the reason."""
    try:
        with imports_allowed(job["imports"]):
            run = _prepared(job, writer, stop)
            writer.tasks = len(run.stream)
            run.go()
    except Interrupted:
        return "stopped", "it was asked to stop, and is saved."
    except BusyError as error:
        return "busy", str(error)
    except RivalsError as error:
        return "failed", str(error)
    except MemoryError:
        return "failed", "The memory is used up; use fewer workers. It continues where it stopped."
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = str(error).strip().partition("\n")[0]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return "failed", f"{type(error).__name__}: {said} ({place})"
    return "finished", ""


def _prepared(job: dict[str, Any], writer: ProgressWriter, stop: threading.Event) -> Run:
    """The run: new, or resumed if its folder holds one."""
    from rivals.experiment.run_settings import parse_overrides, resolve
    from rivals.experiment.start import prepare

    folder = Path(job["folder"])
    changes = parse_overrides(job["changes"])
    settings = resolve(
        job["benchmark"], job["method"], job["preset"], job["seed"], changes, device=job["device"]
    )
    resume = (folder / "config.yaml").exists()
    callbacks: list[Callback] = [writer]
    if job["log"]:
        loggers = open_loggers(job["log"], folder / FOLDER)
        callbacks.append(TrainingLog(loggers, job["log_every"]))
    options = (callbacks, stop.is_set, job["save_every"], job["on"])
    try:
        return prepare(settings, folder, resume, *options)
    except RivalsError:
        if resume or not (folder / "config.yaml").exists():
            raise
        return prepare(settings, folder, True, *options)  # another process started it meanwhile


def _first_line() -> bytes:
    read = b""
    while b"\n" not in read:
        piece = os.read(0, 65536)
        if not piece:
            raise SystemExit(0)  # the parent ended before it sent a job
        read += piece
    return read.partition(b"\n")[0]


def _until_the_end(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(main())
