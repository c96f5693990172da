"""The queue of trainings: one runs, the others wait. It is on disk and survives the server."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.io.files import make_folder, remove_folder, remove_partial, write_json
from rivals.io.reading import UnreadableError, read_json
from rivals.web.collection import safe_name
from rivals.web.training_job import TrainingJob

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
OPEN = (QUEUED, RUNNING)
STATES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
JOB_BYTES = 64 * 2**10  # of the file of a job
MAX_QUEUED = 20
MAX_ENDED = 20  # ended jobs that are kept
MAX_ATTEMPTS = 3  # a training that kills the server is not restarted for ever


@dataclass(frozen=True)
class WebJob:
    """A training that a user requested."""

    id: int
    task: str
    again: bool = False  # refine a known task
    anew: bool = False  # learn a known task from its pictures alone
    minutes: float | None = None
    state: str = QUEUED
    message: str | None = None  # what went wrong
    attempts: int = 0


class Jobs:
    """The queue, and the thread that works on it.

    `command(job)` is the command line of the training. `learned(job)` says whether the model has
    its task already.
    """

    def __init__(
        self,
        folder: Path,
        command: Callable[[WebJob], Sequence[str]],
        learned: Callable[[WebJob], bool],
    ) -> None:
        make_folder(folder)
        self.folder, self.command, self.learned = folder, command, learned
        self.jobs: dict[int, WebJob] = {}
        self.version = 0
        self.stopping = False
        self._wake = threading.Condition(threading.RLock())
        for left in folder.glob(".*.part"):  # half-removed by a killed server
            remove_partial(left)
        for each in sorted(folder.iterdir()):
            with contextlib.suppress(RivalsError):  # left incomplete by a killed server, or foreign
                job = stored_job(each)
                self.jobs[job.id] = job
        self._thread = threading.Thread(target=self._run, name="trainings", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the running training; the next server starts it again."""
        with self._wake:
            self.stopping = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def listing(self) -> list[dict[str, Any]]:
        with self._wake:
            return [asdict(job) for job in self.jobs.values()]

    def current(self) -> WebJob | None:
        """The running training, or else the last that ended."""
        with self._wake:
            jobs = list(self.jobs.values())
        running = [job for job in jobs if job.state == RUNNING]
        ended = [job for job in jobs if job.state not in OPEN and job.attempts]
        return running[0] if running else ended[-1] if ended else None

    def is_open(self, task: str) -> bool:
        """Whether a training of `task` runs or is queued."""
        with self._wake:
            return any(job.task == task and job.state in OPEN for job in self.jobs.values())

    def add(
        self, task: str, again: bool = False, minutes: float | None = None, anew: bool = False
    ) -> WebJob:
        with self._wake:
            if self.is_open(task):
                raise RivalsError(f"'{task}' is already being learned or in the queue.")
            if sum(job.state == QUEUED for job in self.jobs.values()) >= MAX_QUEUED:
                raise RivalsError(
                    f"{MAX_QUEUED} trainings are queued, which is the limit; wait for one to end."
                )
            job = WebJob(max(self.jobs, default=0) + 1, task, again, anew, minutes)
            make_folder(self._folder(job))
            self._set(job)
            self._wake.notify_all()
            return job

    def cancel(self, number: int) -> None:
        with self._wake:
            job = self.jobs.get(number)
            if job is None or job.state not in OPEN:
                raise RivalsError("This training has ended already.")
            self._set(replace(job, state=CANCELLED))
            self._wake.notify_all()

    def forget(self, task: str) -> None:
        """Remove the ended trainings of a task with their files."""
        with self._wake:
            for job in [job for job in self.jobs.values() if job.task == task]:
                if job.state not in OPEN:
                    self._remove(job)

    def events(self, number: int) -> Path:
        """The file of the events of a training."""
        return self.folder / f"{number:06d}" / "events.jsonl"

    # The thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        for each in list(self.jobs.values()):  # cancelled by a server that was killed
            if each.state not in OPEN:
                TrainingJob(self._folder(each)).stop()
        while True:
            with self._wake:
                job = self._next()
                if self.stopping:
                    return
                if job is None:
                    self._wake.wait()
                    continue
            try:
                self._run_job(job)
            except RivalsError as error:
                self._end(job, FAILED, str(error))

    def _next(self) -> WebJob | None:
        """The next job; one that a former server started comes first."""
        waiting = [job for job in self.jobs.values() if job.state in OPEN]
        return min(waiting, key=lambda job: (job.state != RUNNING, job.id), default=None)

    def _run_job(self, job: WebJob) -> None:
        """Start the training, or find the one of a former server, and wait for its end."""
        training = TrainingJob(self._folder(job))
        if not training.alive() and training.outcome() is None:
            if job.attempts and self.learned(job):  # killed after the model was written
                self._end(job, DONE)
                return
            if job.attempts >= MAX_ATTEMPTS:
                self._end(
                    job, FAILED, f"The training was interrupted {MAX_ATTEMPTS} times; try again."
                )
                return
            with self._wake:
                if self.jobs[job.id].state not in OPEN:
                    return
                job = replace(job, state=RUNNING, attempts=job.attempts + 1)
                self._set(job)
            training.start(self.command(job))
        while training.alive():
            with self._wake:
                if self.stopping or self.jobs[job.id].state == CANCELLED:
                    break
                self._wake.wait(0.1)
        if training.alive():
            training.stop()
        self._finish(job, training)

    def _finish(self, job: WebJob, training: TrainingJob) -> None:
        """Store how the training ended, unless it is to be started again."""
        outcome = training.outcome()
        if outcome is not None and outcome["event"] == "done":  # also if it was cancelled too late
            self._end(job, DONE)
        elif self.jobs[job.id].state == CANCELLED:
            self._remove_old()
        elif self.stopping:  # stopped by us, which does not count as an attempt
            with self._wake:
                self._set(replace(job, attempts=job.attempts - 1))
        elif outcome is None and training.process is None:
            return  # started by a former server and killed: the thread starts it again
        elif outcome is not None:
            self._end(job, FAILED, str(outcome.get("sentence", "The training failed.")))
        else:
            self._end(job, FAILED, training.failure())

    def _end(self, job: WebJob, state: str, message: str | None = None) -> None:
        with self._wake:
            ended = replace(self.jobs[job.id], state=state, message=message)
            try:
                self._set(ended)
            except RivalsError:  # a full disk must not end the thread; the page still shows it
                self.jobs[job.id] = ended
                self.version += 1
        self._remove_old()

    # The files -----------------------------------------------------------------------------------

    def _folder(self, job: WebJob) -> Path:
        return self.events(job.id).parent

    def _set(self, job: WebJob) -> None:
        write_json(self._folder(job) / "job.json", asdict(job))
        self.jobs[job.id] = job
        self.version += 1

    def _remove(self, job: WebJob) -> None:
        with contextlib.suppress(OSError):
            remove_folder(self._folder(job))
        del self.jobs[job.id]
        self.version += 1

    def _remove_old(self) -> None:
        with self._wake:
            ended = [job for job in self.jobs.values() if job.state not in OPEN]
            for job in ended[:-MAX_ENDED]:
                self._remove(job)


def stored_job(folder: Path) -> WebJob:
    """The job in a folder. Raises RivalsError if it, or a file beside it, is not as we write it."""
    facts = read_json(folder / "job.json", "job", JOB_BYTES, folder.parent)
    damaged = UnreadableError(f"The job {folder / 'job.json'} is damaged.")
    with os.scandir(folder) as found:
        if not all(each.is_file(follow_symlinks=False) for each in found):
            raise damaged  # a link, through which a training would write
    try:
        job = WebJob(**facts)
        name = f"{job.id:06d}"
    except (TypeError, ValueError) as error:
        raise damaged from error
    texts = isinstance(job.task, str) and (job.message is None or isinstance(job.message, str))
    counts = type(job.id) is int and type(job.attempts) is int and isinstance(job.again, bool)
    counts = counts and isinstance(job.anew, bool)
    timed = job.minutes is None or (isinstance(job.minutes, int | float) and job.minutes > 0)
    if not (texts and counts and timed) or job.state not in STATES or name != folder.name:
        raise damaged
    safe_name(job.task, "task")
    return job
