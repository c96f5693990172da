"""One task on its way into a model: read, hold some out, train, measure, commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rivals.errors import RivalsError
from rivals.io.process_memory import peak_memory
from rivals.learn.twta import TWTA
from rivals.model import budgets as budget
from rivals.model import defaults as choose
from rivals.model import picture_folder as pictures
from rivals.model.folder import Model, empty
from rivals.model.manifest import TaskFacts
from rivals.model.picture_folder import LeftOut, LoadedPictures, PictureFolder
from rivals.model.refining import SLOWER, Refiner
from rivals.model.trainer import Interrupted, Trainer
from rivals.naming import familiarity as calibration
from rivals.seeds import Seed
from rivals.streams.stream import stratified
from rivals.streams.task import Examples, Task
from rivals.tickets.cost import cost
from rivals.tickets.parallel import ParallelTickets

Watcher = Callable[[dict[str, Any]], None]  # told an event, as `rivals learn --json` prints it


@dataclass(frozen=True)
class Learned:
    """What came of it."""

    facts: TaskFacts
    left_out: list[LeftOut]
    repeated: int  # pictures that were there twice in one class
    grown: list[int]  # rivals that the blocks of each layer gained
    room: dict[str, float]  # share of edges that are free, by layer
    peak_memory: int  # bytes of this process
    before: float | None = None  # accuracy before refining, on the same held-out pictures
    kept: bool = True  # False: refining made it worse, so the model was left as it was

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.facts.to_dict(),
            "left_out": [vars(each) for each in self.left_out],
            "repeated": self.repeated,
            "grown": self.grown,
            "room": self.room,
            "peak_memory": self.peak_memory,
            "before": self.before,
            "kept": self.kept,
        }


@dataclass(frozen=True)
class LearnOptions:
    """What a user may ask of learning."""

    again: bool = False  # refine a task that is known
    strict: bool = False  # refuse a folder with anything in it that cannot be learned
    minutes: float | None = None  # for all of it
    ram: float | None = None  # MB of this process
    network: str | None = None  # of a new model
    size: int | None = None  # pixels a side, of a new model
    grey: bool = False  # a new model without colours
    epochs: int | None = None
    augmentation: str | None = None
    seed: int = 0  # of a new model


class LearningSession:
    """One task on its way into a model."""

    def __init__(
        self, model: Model, task: str, wishes: LearnOptions, watcher: Watcher,
        asked_to_stop: Callable[[], bool], clock: budget.TimeBudget,
    ) -> None:  # fmt: skip
        self.model, self.task, self.wishes = model, task, wishes
        self.watcher, self.asked_to_stop, self.clock = watcher, asked_to_stop, clock
        self.seed = Seed(model.description.seed).child("device", task)

    def go(self, found: PictureFolder) -> Learned:
        model, method = self.model, self.method()
        read = self.read(found)
        task = self.divide(read)
        known = model.description.task(task.name)
        method.settings = choose.training(
            len(task.train), model.description.input_shape[1], self.room.batch,
            self.wishes.epochs, self.wishes.augmentation,
        )  # fmt: skip
        units = [rivals.units for rivals in method.network.rivals()]
        if known:
            return self.refine(task, read, known)
        trainer = Trainer(method, task, self.watcher, self.asked_to_stop, self.clock)
        stopped = trainer.learn()
        facts = self.facts(task, stopped, None)
        model.familiar[task.name] = self.familiar(task)
        made = model.commit([*model.tasks, facts])
        grown = [r.units - was for r, was in zip(method.network.rivals(), units, strict=True)]
        return self.done(made, read, grown)

    def done(
        self, made: Model, read: LoadedPictures, grown: list[int], before: float | None = None,
        kept: bool = True,
    ) -> Learned:  # fmt: skip
        learned = Learned(
            made.task(self.task), read.left_out, read.repeated, grown, made.room(),
            peak_memory(), before, kept,
        )  # fmt: skip
        self.watcher({"event": "done", **learned.to_dict()})
        return learned

    def refine(self, task: Task, read: LoadedPictures, known: TaskFacts) -> Learned:
        """Train a known task further; where that makes it worse, the model stays as it is."""
        model, method = self.model, self.model.method
        old = method.known[task.name]
        method.settings = method.settings.replace(lr=method.settings.lr * SLOWER)
        refiner = Refiner(method, task, self.watcher, self.asked_to_stop, self.clock)
        before, after = refiner.refine()
        none = [0] * len(method.network.rivals())
        if after < before:
            return self.done(Model.open(model.path), read, none, before, kept=False)
        share = len(task.train) / (len(task.train) + known.images)
        refiner.remember(old, share)
        model.familiar[task.name] = self.familiar(task)
        facts = self.facts(task, refiner.reason, known)
        made = model.commit([facts if each == known else each for each in model.tasks])
        return self.done(made, read, none, before)

    def method(self) -> TWTA:
        model = self.model
        if not model.description.units:  # a new one
            model.__dict__["method"] = empty(model.description)
        return model.method

    def read(self, found: PictureFolder) -> LoadedPictures:
        """Decode the pictures, as many as memory allows."""
        shape = self.model.description.input_shape
        self.room = budget.room(shape, found.count, self.wishes.ram)
        few = pictures.some(found, self.room.pictures, self.seed.child("some"))
        if few.count < found.count:
            self.watcher(
                {"event": "fewer", "images": few.count, "of": found.count, "reason": "memory"}
            )

        def told(done: int, count: int) -> None:
            if self.asked_to_stop():
                raise Interrupted
            self.clock.check(f"reading {done:,} of {count:,} pictures")
            if done % 50 == 0 or done == count:
                self.watcher({"event": "reading", "done": done, "of": count})

        read = pictures.read(few, shape, told)
        if read.left_out and self.wishes.strict:
            names = tuple(Path(each.path).name for each in read.left_out)
            raise RivalsError(
                f"{len(names)} of the files in {found.folder} cannot be learned from "
                f"({_some(names)}); take them out, or leave out --strict to see why each."
            )
        if read.left_out:
            self.watcher({"event": "left_out", "files": [vars(each) for each in read.left_out]})
        return read

    def divide(self, read: LoadedPictures) -> Task:
        """Hold some pictures of every class out."""
        share = choose.held_share(len(read.labels))
        known = self.model.description.task(self.task)
        if known and sorted(known.classes) != sorted(read.classes):
            raise RivalsError(
                f"The task '{self.task}' has the classes {_some(known.classes)}, but the folder "
                f"has {_some(read.classes)}; to refine a task its classes must be the same."
            )
        classes = known.classes if known else read.classes
        places = torch.tensor([classes.index(name) for name in read.classes])
        examples = Examples(read.images, places[read.labels])
        kept, held = stratified(examples.labels, share, self.seed.child("held"))
        channels = self.model.description.input_shape[0]
        return Task(
            self.task, classes, examples.subset(kept), examples.subset(held),
            choose.preparation(channels),
        )  # fmt: skip

    def facts(self, task: Task, stopped: str, known: TaskFacts | None) -> TaskFacts:
        """All that is said of the task; its accuracy is measured with its ticket."""
        method, shape = self.model.method, self.model.description.input_shape
        ticket = method.ticket(task.name)
        readings = ParallelTickets([ticket], [task.preprocessing])(task.validation.images)
        right = readings[0].scores.argmax(1) == task.validation.labels
        small = cost(ticket, shape)
        older = known.inherited_from if known else tuple(t.name for t in self.model.tasks[::-1])
        return TaskFacts(
            name=task.name,
            classes=task.classes,
            images=len(task.train) + (known.images if known else 0),
            held=len(task.validation),
            accuracy=100 * int(right.sum()) / len(right),
            weights=small.weights,
            bytes=1,  # known when it is written
            macs=small.macs,
            seconds=round(self.clock.spent(), 2) + (known.seconds if known else 0),
            steps=method.position.step,
            stopped=stopped,
            refined=known.refined + 1 if known else 0,
            inherited_from=older,
        )

    def familiar(self, task: Task) -> calibration.FeatureStatistics:
        """What is usual for the task's own pictures, as its ticket reads them."""
        ticket = self.model.method.ticket(task.name)
        return calibration.calibrate(task, ParallelTickets([ticket], [task.preprocessing]))


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
