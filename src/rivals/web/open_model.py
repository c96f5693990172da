"""The model behind the page: facts, winners and answers, read again when the folder changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels, to_shown
from rivals.model.testing import wilson
from rivals.naming.frame_filter import FrameFilter
from rivals.web.collection import one_picture

if TYPE_CHECKING:
    from rivals.model.explaining import Explanation
    from rivals.model.manifest import TaskFacts
    from rivals.model.model import Model
    from rivals.tickets.ticket import Ticket

MOST_COMPARED = 50  # with more tasks the overlap of their winners is not computed
TOP_CLASSES = 5  # classes in an answer
EXPLAINED_SIDE = 512  # pixels of a picture under its heat map, at most
MOST_STREAMS = 32  # cameras whose last frames are remembered
NOTHING_LEARNED = "The model has not learned anything yet; train a task first."
Stamp = tuple[int, int, int]


class OpenModel:
    """The model in `folder`, which does not exist before the first task is learned.

    torch is imported when there is a model to read, so a new server starts quickly.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._facts: tuple[Stamp | None, dict[str, Any]] = (None, {})
        self._model: Model | None = None
        self._streams: dict[tuple[str, float | None], FrameFilter] = {}

    def stamp(self) -> Stamp | None:
        """Changes with every change of the model; None if there is no model yet."""
        try:
            status = (self.folder / "model.json").stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def facts(self) -> dict[str, Any]:
        """Tasks, free room and overlap of winners for JSON; `error` if the model is damaged."""
        with self._lock:
            stamp = self.stamp()
            if stamp is None:
                return {"tasks": [], "room": None, "overlap": None, "error": None}
            if self._facts[0] != stamp:
                self._facts = (stamp, self._read())
            return self._facts[1]

    def _read(self) -> dict[str, Any]:
        try:
            folder = self.open().opened()
            return {
                "tasks": [task_facts(task) for task in folder.tasks],
                "room": folder.room(),
                "overlap": folder.overlap() if len(folder.tasks) <= MOST_COMPARED else None,
                "error": None,
            }
        except RivalsError as error:  # shown on the page, which works on
            return {"tasks": [], "room": None, "overlap": None, "error": str(error)}

    def __contains__(self, task: str) -> bool:
        return any(each["name"] == task for each in self.facts()["tasks"])

    def open(self) -> Model:
        """The model; RivalsError if nothing was learned yet."""
        if self.stamp() is None:
            raise RivalsError(NOTHING_LEARNED)
        if self._model is None:
            from rivals.model.model import Model

            self._model = Model(self.folder)
        return self._model

    def winners(self, task: str) -> dict[str, Any]:
        """The winner of each block, layer by layer, and the number of units in a block."""
        with self._lock:
            folder = self.open().opened()
            return {"winners": folder.winners(task), "units": list(folder.description.units)}

    def answer(
        self, picture: bytes, filename: str, task: str | None, reject: float | None,
        stream: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Class, task and confidence of a picture, and the most likely classes.

        Pictures of one `stream`, those of a camera, are answered by the last ones together.
        """
        shape = self._shape()
        with one_picture:
            pixels = to_pixels(picture, shape, name=filename)
        with self._lock:
            if stream is None:
                (answer,) = self.open().answers(pixels[None], task, reject)
            else:
                together = self._together(stream, reject)
                answer = together(self.open().evidence(pixels[None], task, reject)[0])
        choices = [(each.label, round(each.confidence, 4)) for each in answer.top(TOP_CLASSES)]
        return {
            "task": answer.task, "label": answer.label, "confidence": answer.confidence,
            "rejected": answer.rejected, "choices": choices,
        }  # fmt: skip

    def explain(self, picture: bytes, filename: str, task: str | None) -> Explanation:
        """Which part of a picture decided for the class that is answered."""
        shape = self._shape()
        with one_picture:
            pixels = to_pixels(picture, shape, name=filename)
            shown = to_shown(picture, shape, EXPLAINED_SIDE)
        with self._lock:
            from rivals.model.explaining import explain

            (answer,) = self.open().answers(pixels[None], task)
            return explain(self.open().opened(), pixels, shown, answer, task)

    def _shape(self) -> tuple[int, int, int]:
        """What pictures become: (channels, height, width)."""
        with self._lock:
            model = self.open()
            if not model.tasks:
                raise RivalsError(NOTHING_LEARNED)
            return model.opened().description.input_shape

    def _together(self, stream: str, reject: float | None) -> FrameFilter:
        """What joins the frames of a stream; of few streams, the newest."""
        key = stream, reject
        found = self._streams.pop(key, None) or FrameFilter(reject)
        self._streams[key] = found
        while len(self._streams) > MOST_STREAMS:
            del self._streams[next(iter(self._streams))]
        return found

    def ticket(self, task: str) -> Ticket:
        with self._lock:
            return self.open().ticket(task)

    def drop(self, task: str) -> list[str]:
        """Drop a task; returns the tasks that inherited from it."""
        with self._lock:
            return self.open().drop(task).heirs


def task_facts(task: TaskFacts) -> dict[str, Any]:
    """What the page shows of a task, with the 95 % interval of its held-out accuracy."""
    facts = task.to_dict()
    facts["interval"] = accuracy_interval(task.accuracy, task.held)
    return {key: value for key, value in facts.items() if key not in ("file", "sha256")}


def accuracy_interval(accuracy: float, images: int) -> tuple[float, float] | None:
    """The 95 % interval of an accuracy (percent) on `images` pictures; None without pictures."""
    return wilson(round(accuracy * images / 100), images) if images else None
