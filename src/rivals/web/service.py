"""What the page works on: the model, collected pictures, trainings; and the rules between them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.io.files import make_folder
from rivals.io.locks import BusyError, FolderLock
from rivals.web.collect import Collection, Limits
from rivals.web.downloads import Package, package
from rivals.web.jobs import RUNNING, Jobs, WebJob
from rivals.web.open_model import OpenModel

FEWEST_CLASSES = 2
FEWEST_PICTURES = 2  # of a class: one to learn from, one to check with
FEWEST_COMPARED = 8


class Service:
    """One for each model; a second server of the same model is refused."""

    def __init__(self, model: Path, limits: Limits | None = None) -> None:
        self.model = model.resolve()
        self.folder = beside(self.model)
        make_folder(self.folder)
        try:
            self.lock = FolderLock(self.folder)
        except BusyError as error:
            raise BusyError(
                f"Another server has this model open ({self.model}); use its page, or stop it."
            ) from error
        self.known = OpenModel(self.model)
        self.collection = Collection(self.folder / "pictures", limits)
        self.jobs = Jobs(self.folder / "trainings", self._command, self._learned)
        self.closing = threading.Event()
        self.jobs.start()
        # Opening a model takes seconds, most of them to import torch; pages need not wait for it.
        threading.Thread(target=self.known.facts, name="opening", daemon=True).start()

    def close(self) -> None:
        self.closing.set()
        self.jobs.close()
        self.lock.release()

    def version(self) -> tuple[int, int]:
        """Changes whenever `state` does."""
        return self.collection.version, self.jobs.version

    def state(self) -> dict[str, Any]:
        """What is collected and trained; what was learned is `known.facts`."""
        limits = self.collection.limits
        return {
            "model": self.model.name,
            "collected": self.collection.listing(),
            "trainings": self.jobs.listing(),
            "limits": {"picture": limits.picture, "a_class": limits.a_class},
            "fewest": {"classes": FEWEST_CLASSES, "pictures": FEWEST_PICTURES},
        }

    # What a user does ----------------------------------------------------------------------------

    def train(self, task: str, minutes: float | None = None) -> WebJob:
        """Queue a training of the pictures of `task`; of a known task, once more."""
        self.collection.of(task)
        counts = {name: len(files) for name, files in self.collection.tasks[task].items()}
        few = [name for name, count in counts.items() if count < FEWEST_PICTURES]
        if len(counts) < FEWEST_CLASSES:
            raise RivalsError(
                f"'{task}' has {len(counts)} class; collect pictures of at least "
                f"{FEWEST_CLASSES} to tell apart."
            )
        if few:
            raise RivalsError(
                f"'{few[0]}' has {counts[few[0]]} pictures; collect at least {FEWEST_PICTURES}."
            )
        if minutes is not None and not 0 < minutes <= 10_000:
            raise RivalsError(f"{minutes:g} minutes were given; give a number above 0.")
        return self.jobs.add(task, self.known.has(task), minutes)

    def check_free(self, task: str) -> None:
        """Refuse to change pictures that a training reads."""
        if self.jobs.waits(task):
            raise RivalsError(
                f"'{task}' is being learned or waits for it; wait for the end, or cancel it."
            )

    def drop(self, task: str) -> list[str]:
        """Take a task out, with its pictures and trainings; gives the tasks that inherited."""
        self.check_free(task)
        current = self.jobs.current()
        if current is not None and current.state == RUNNING:
            raise BusyError(
                f"'{current.task}' is being learned, and one at a time may change the model; "
                "wait for the end, or cancel it."
            )
        heirs = self.known.drop(task)
        self.collection.remove(task)
        self.jobs.forget(task)
        return heirs

    def package(self, task: str, to: str) -> Package:
        """A ticket to take away, compared on the collected pictures where they are its own."""
        model = self.known.open()
        classes = set(model.task(task).classes)
        here = self.collection.tasks.get(task, {})
        own = set(here) <= classes and sum(map(len, here.values())) >= FEWEST_COMPARED
        return package(model, task, to, self.collection.of(task) if own else None)

    # What a training is --------------------------------------------------------------------------

    def _command(self, job: WebJob) -> Sequence[str]:
        words = [
            sys.executable,
            "-m",
            "rivals.cli.main",
            "learn",
            str(self.collection.of(job.task)),
        ]
        words += ["--model", str(self.model), "--name", job.task, "--json"]
        words += ["--again"] if job.again else []
        words += ["--minutes", f"{job.minutes:g}"] if job.minutes is not None else []
        return words

    def _learned(self, job: WebJob) -> bool:
        return not job.again and self.known.has(job.task)


def beside(model: Path) -> Path:
    """Where pictures and trainings wait: next to the model, which holds only what was learned."""
    return model.with_name(f"{model.name}.collected")
