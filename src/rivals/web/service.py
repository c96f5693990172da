"""What the page works on: the model, the collected pictures, the trainings, and their rules."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.io.files import make_folder, open_plain
from rivals.io.locks import BusyError, FolderLock
from rivals.io.reading import check_no_links
from rivals.model.manifest import exists
from rivals.web.collection import Collection, Limits
from rivals.web.downloads import Package, package
from rivals.web.jobs import RUNNING, Jobs, WebJob
from rivals.web.open_model import OpenModel
from rivals.web.sample import sample_pictures
from rivals.web.undo import LastDrop

MIN_CLASSES = 2
MIN_PICTURES = 2  # of a class: one to train on, one to hold out
MIN_COMPARED = 8  # pictures with which an export is compared


class Service:
    """One for each model. A lock refuses a second server of the same model."""

    def __init__(
        self, model: Path, limits: Limits | None = None, ancestor: str | None = None
    ) -> None:
        self.model, self.ancestor = model.resolve(), ancestor
        self.folder = collected_folder(self.model)
        for part in ("pictures", "trainings"):
            check_no_links(self.folder.parent, self.folder / part, "folder of the server")
        make_folder(self.folder)
        try:
            self.lock = FolderLock(self.folder)
        except BusyError as error:
            raise BusyError(
                f"Another server has the model {self.model} open; use its page, or stop it."
            ) from error
        self.open_model = OpenModel(self.model)
        self.collection = Collection(self.folder / "pictures", limits, self.lock.check_place)
        self.last_drop = LastDrop(self.folder, self.open_model, self.collection)
        self.jobs = Jobs(self.folder / "trainings", self._command, self._learned)
        self.closing = threading.Event()
        self._opening = self.folder / "open.html"
        self.jobs.start()
        # Importing torch takes seconds; the page need not wait for it.
        threading.Thread(target=self.open_model.facts, name="open model", daemon=True).start()

    def close(self) -> None:
        self.closing.set()
        self.jobs.close()
        self.last_drop.forget()
        self._opening.unlink(missing_ok=True)
        self.lock.release()

    def open_browser(self, content: str) -> None:
        """Open a file that leads to the page.

        The address with the token would be on the command line of the browser, for all to see.
        """
        import webbrowser

        self._opening.unlink(missing_ok=True)
        with open_plain(self._opening, "wb") as file:
            file.write(content.encode())
        webbrowser.open(self._opening.as_uri())

    def version(self) -> tuple[int, int, int]:
        """Changes whenever `state` changes."""
        return self.collection.version, self.jobs.version, self.last_drop.version

    def state(self) -> dict[str, Any]:
        """The collected pictures and the trainings; `open_model.facts` has what was learned."""
        limits = self.collection.limits
        return {
            "model": self.model.name,
            "collected": self.collection.listing(),
            "trainings": self.jobs.listing(),
            "dropped": self.last_drop.task,
            "limits": {"picture_bytes": limits.picture_bytes},
            "minimum": {"classes": MIN_CLASSES, "pictures": MIN_PICTURES},
        }

    # Requests of a user --------------------------------------------------------------------------

    def train(self, task: str, minutes: float | None = None, anew: bool = False) -> WebJob:
        """Queue a training on the pictures of `task`.

        A known task is refined, or learned `anew` from these pictures alone.
        """
        self.lock.check_place()
        self.collection.path(task)
        counts = {name: len(files) for name, files in self.collection.tasks[task].items()}
        if len(counts) < MIN_CLASSES:
            raise RivalsError(
                f"'{task}' has {len(counts)} class; collect pictures of at least {MIN_CLASSES}."
            )
        for name, count in counts.items():
            if count < MIN_PICTURES:
                raise RivalsError(
                    f"'{name}' has {count} picture{'' if count == 1 else 's'}; collect at least "
                    f"{MIN_PICTURES}."
                )
        if minutes is not None and not 0 < minutes <= 10_000:
            raise RivalsError(f"{minutes:g} minutes were given; give a number above 0.")
        known = task in self.open_model
        job = self.jobs.add(task, known and not anew, minutes, known and anew)
        self.collection.edited.discard(task)
        self.last_drop.forget()
        return job

    def add_sample(self, task: str) -> str:
        """Collect the bundled sample as a task; returns its name."""
        (stored,) = self.collection.add_tasks(sample_pictures(task))
        return stored

    def check_free(self, task: str) -> None:
        """Refuse to change pictures that a training reads."""
        if self.jobs.is_open(task):
            raise RivalsError(
                f"'{task}' is being learned or is in the queue; wait for the end, or cancel it."
            )

    def drop(self, task: str) -> list[str]:
        """Drop a task with its pictures and trainings; returns the tasks that inherited from it."""
        self.lock.check_place()
        self.check_free(task)
        self._check_idle()
        heirs = self.last_drop.drop(task)
        self.jobs.forget(task)
        return heirs

    def undo_drop(self) -> str:
        """Bring the last drop back; returns the task."""
        self.lock.check_place()
        self._check_idle()
        return self.last_drop.undo()

    def _check_idle(self) -> None:
        current = self.jobs.current()
        if current is not None and current.state == RUNNING:
            raise BusyError(
                f"'{current.task}' is being learned, and only one process may change the model; "
                "wait for the end, or cancel it."
            )

    def package(self, task: str, to: str) -> Package:
        """A ticket to download, compared with the model on collected pictures of its classes."""
        ticket = self.open_model.ticket(task)
        collected = self.collection.tasks.get(ticket.task, {})
        enough = sum(map(len, collected.values())) >= MIN_COMPARED
        comparable = enough and set(collected) <= set(ticket.classes)
        return package(ticket, to, self.collection.path(ticket.task) if comparable else None)

    # Trainings -----------------------------------------------------------------------------------

    def _command(self, job: WebJob) -> Sequence[str]:
        """The training of a job: `rivals learn --json` on its pictures."""
        words = [sys.executable, "-m", "rivals.cli.main", "learn"]
        words += [str(self.collection.path(job.task)), "--model", str(self.model)]
        words += ["--name", job.task, "--json"]
        if self.ancestor and not exists(self.model):
            words += ["--ancestor", self.ancestor]
        words += ["--again"] if job.again else ["--anew"] if job.anew else []
        words += ["--minutes", f"{job.minutes:g}"] if job.minutes is not None else []
        return words

    def _learned(self, job: WebJob) -> bool:
        """Whether the model has the task of an interrupted job, so that it need not run again."""
        return not job.again and not job.anew and job.task in self.open_model


def collected_folder(model: Path) -> Path:
    """The folder of pictures and trainings: next to the model, which holds no pictures."""
    return model.with_name(f"{model.name}.collected")
