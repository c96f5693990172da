"""Learning one task: read, hold some pictures out, train, measure, and only then write.

    open source ─► read ─► hold some out ─► train ─► keep the best weights ─► measure ─► commit

The model in the folder is touched once, at the end. A kill before leaves the old model, a kill
after leaves the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rivals.errors import Interrupted, RivalsError
from rivals.io.process_memory import peak_memory
from rivals.learn.callbacks import (
    Callback,
    EarlyStopping,
    MemoryLimit,
    StopOnRequest,
    TimeLimit,
    standard_error,
    validation_accuracy,
)
from rivals.learn.linear_head import Fit
from rivals.learn.logistic_regression import logistic_regression
from rivals.learn.method import Position
from rivals.learn.model_twta import ModelTWTA
from rivals.learn.trainer import PLANNED, Trainer
from rivals.learn.training_log import EVERY
from rivals.logs.open_loggers import LogTarget, open_loggers
from rivals.model import advice, budgets, defaults, limits
from rivals.model.advice import Advice
from rivals.model.data_source import PictureData, open_source, task_name
from rivals.model.dropping import forget
from rivals.model.edge_discriminant import EdgeDiscriminant
from rivals.model.events import Event, EventCallback, Listener, begins, mistakes
from rivals.model.folder import ModelFolder
from rivals.model.folder_writing import write_lock
from rivals.model.frozen_features import ClosedForm, FrozenFeatures
from rivals.model.learn_log import LearnLog, log_folder
from rivals.model.learn_options import LearnOptions, new_model
from rivals.model.lesson_checks import (
    check_apart,
    check_classes,
    check_known,
    check_strict,
    limits_in_words,
)
from rivals.model.manifest import TaskFacts, exists
from rivals.naming import familiarity
from rivals.naming.discriminant import Head
from rivals.naming.familiarity import few
from rivals.naming.task_record import TaskRecord
from rivals.nn.stem import EDGES, PIXELS
from rivals.seeds import Seed
from rivals.streams import picture_source
from rivals.streams.picture_source import LeftOut, LoadedPictures, PictureSource
from rivals.streams.stream import stratified
from rivals.streams.task import Examples, Task
from rivals.tickets.cost import cost
from rivals.tickets.parallel import ParallelTickets

FEWEST_STEPS = 20  # that a budget of minutes must leave time for
REFINING_LR = 0.2  # the learning rate of refining, as a share of that for a new task


@dataclass(frozen=True)
class Learned:
    """What came of learning a task."""

    facts: TaskFacts
    left_out: list[LeftOut]
    repeated: int  # pictures that were there twice in one class
    grown: list[int]  # units that the blocks of each layer gained
    room: dict[str, float]  # share of edges that are free, by layer
    peak_memory: int  # bytes of this process
    before: float | None = None  # accuracy before refining, on the same held-out pictures
    kept: bool = True  # False: refining made it worse, so the model was left as it was
    unsigned: bool = False  # whether the model was signed, which it is no longer
    advice: Advice | None = None  # None: a known task was refined

    @property
    def task(self) -> str:
        return self.facts.name

    @property
    def accuracy(self) -> float:
        """Percent of the held-out pictures; slightly optimistic, since they chose the weights."""
        return self.facts.accuracy

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
            "unsigned": self.unsigned,
            "advice": self.advice.to_dict() if self.advice else None,
        }


def learn(
    data: PictureData,
    model: str | Path,
    name: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    log: LogTarget = None,
    log_every: int = EVERY,
    callbacks: Sequence[Callback] = (),
    listener: Listener = lambda event: None,
    asked_to_stop: Callable[[], bool] = lambda: False,
    started: float | None = None,
    device: str = "cpu",
    **options: Any,
) -> Learned:
    """Teach the model in the folder `model`, made if it is not there, the task in `data`.

    `options` are the fields of `LearnOptions`. `asked_to_stop` is asked at every step, and then
    `Interrupted` is raised. `started` is when the budget of minutes began (time.monotonic).
    """
    wanted = LearnOptions(**options)
    budget = budgets.TimeBudget(wanted.minutes, time.monotonic() if started is None else started)
    where = Path(model)
    task = picture_source.named(task_name(data, name), "task")
    logged = LearnLog(open_loggers(log, log_folder(where, task)), log_every)
    if isinstance(data, str | Path):
        check_apart(Path(data), where)
    with write_lock(where) as lock:
        opened = ModelFolder.open(where, device, lock) if exists(where) else None
        known = [] if opened is None else [each.name for each in opened.tasks]
        check_known(known, task, wanted.again or wanted.anew)
        if opened is not None:
            wanted.check_existing(opened)
        source = open_source(data, task, classes)
        if opened is None:
            ancestor = wanted.find_ancestor()
            content = new_model(source, wanted, ancestor)
            opened = ModelFolder(where, content, device, lock, ancestor=ancestor)
        source = source.read_as(opened.description.sound, f"the model {where}")
        if wanted.anew:
            forget(opened, task)
        if logged.loggers:
            callbacks, listener = [*callbacks, logged], logged.heard(listener)
        session = LearningSession(opened, task, wanted, budget, callbacks, listener, asked_to_stop)
        with limits_in_words(), closing(logged):
            return session.run(source)


class LearningSession:
    """One task on its way into a model."""

    def __init__(
        self, model: ModelFolder, task: str, options: LearnOptions, budget: budgets.TimeBudget,
        callbacks: Sequence[Callback], listener: Listener, asked_to_stop: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.model, self.task, self.options, self.budget = model, task, options, budget
        self.listener, self.asked_to_stop = listener, asked_to_stop
        self.seed = Seed(model.description.seed).child("device", task)
        self.memory = budgets.MemoryPlan(0, 0)
        self.answers = torch.empty(0, dtype=torch.int64)  # of the ticket, for held-out pictures
        self.advice: Advice | None = None
        self.mistakes: Event | None = None
        self.items: list[Any] = []  # the pictures of the task as files, training before held-out
        self.callbacks = [
            StopOnRequest(asked_to_stop),
            TimeLimit(budget.left, FEWEST_STEPS, budget.check_steps),
            *([MemoryLimit(options.ram)] if options.ram else []),
            EventCallback(listener),
            EarlyStopping(defaults.checks, listener=listener),
            *callbacks,
        ]

    def run(self, source: PictureSource) -> Learned:
        model, method = self.model, self.model.method
        augmentation = self.options.augmentation
        if method.network.stem is not None and augmentation not in (None, "none"):
            raise RivalsError(
                f"--augment {augmentation} is for networks that see pictures anew, but the "
                f"features of the ancestor of {model.path} are computed once; leave it out."
            )
        pictures = self.read(source)
        task = self.divide(pictures)
        known = model.description.task(task.name)
        method.settings = defaults.training(
            len(task.train), model.description.input_shape[1], self.memory.batch,
            self.options.epochs, augmentation, method.network.has_ancestor,
            method.network.stem is not None,
        )  # fmt: skip
        if known and method.in_closed_form(known.name):
            return self.refine_statistics(task, pictures, known)
        if known:
            return self.refine(task, pictures, known)
        before = [rivals.units for rivals in method.network.rivals()]
        trainer = Trainer(method, [GrowthEvent(before, self.listener), *self.callbacks])
        if method.network.shares_features:
            facts = self.from_ancestor(task, trainer)
        else:
            facts = self.facts(task, trainer.fit(task), None)
            model.familiarity[task.name] = self.statistics(task)
            self.advise(task, advice.NEW_UNITS, self.answers)
        facts = self.by_pixels(task) or facts
        made = model.commit([*model.tasks, facts], "learn", task.name)
        grown = [r.units - was for r, was in zip(method.network.rivals(), before, strict=True)]
        return self.done(made, pictures, grown)

    def from_ancestor(self, task: Task, trainer: Trainer) -> TaskFacts:
        """Learn by the ancestor's units alone, by new ones, or by whichever is better.

        A head in closed form on the ancestor's features costs a second. New units start as copies
        of the ancestor's and are trained; with many pictures they can be better. They are kept if
        they are better on the held-out pictures by more than chance explains, for they cost bytes.
        A closed form that is kept is then made from all pictures. Who asks for no way of learning
        may get a discriminant on edges, where it is better.
        """
        model, method, wanted = self.model, self.model.method, self.options.new
        network, seed = method.network, self.seed.child("folds")
        frozen = FrozenFeatures(method, task, seed)
        closed = frozen.closed_form()
        fit, edges = frozen.fit(closed), None
        if self.options.chooses_nothing and EDGES in network.direct_inputs:
            edges = EdgeDiscriminant(method, task, seed)
        best = max(closed.accuracy, edges.accuracy if edges else 0.0)
        few = len(task.train) < defaults.FEWEST_NEW * len(task.classes)
        enough = few or best >= defaults.GOOD_ENOUGH
        if self.options.chooses_nothing and enough:
            wanted = 0.0  # nothing is trained
        if wanted != 0:
            method.settings = method.settings.replace(new=1.0 if wanted is None else wanted)
            method.first_head = frozen.first_head(closed) if network.has_ancestor else None
            facts = self.facts(task, trainer.fit(task), None)
            known = frozen.validation_accuracy(closed)
            if edges is not None:
                known = max(known, edges.validation_accuracy())
            worth = known + max(defaults.WORTH_NEW, standard_error(known, len(task.validation)))
            if wanted is not None or facts.accuracy > worth:
                model.familiarity[task.name] = self.statistics(task)
                self.advise(task, advice.NEW_UNITS, self.answers, frozen.few_rows, fit)
                return facts
            method.drop(task.name)
        if edges is not None and edges.beats(closed.predicted):
            self.advise(task, advice.EDGES, edges.predicted, frozen.few_rows, edges.fit,
                        edges.few_rows)  # fmt: skip
            count, method.position = len(edges.labels), Position()  # nothing was trained
            self.listener({**begins(method, task), "images": count, "held": count})
            return self.directly(task, edges.head, edges.accuracy, count)
        kept = advice.NEAREST if closed.nearest_mean else advice.CLOSED_FORM
        self.advise(task, kept, closed.predicted, frozen.few_rows, fit)
        return self.in_closed_form(task, closed, None)

    def directly(self, task: Task, head: Head, accuracy: float, tested: int) -> TaskFacts:
        """Let a finished head that reads no body be all of the task."""
        self.model.method.learn_direct(task, *head)
        self.model.familiarity[task.name] = self.statistics(task)
        count = len(task.train) + len(task.validation)
        facts = self.facts(task, PLANNED, None)
        return replace(facts, accuracy=accuracy, held=tested, images=count)

    def by_pixels(self, task: Task) -> TaskFacts | None:
        """Learn by logistic regression on small pixels, if it is better than what was learned.

        That is seldom so, and then a network has little to offer. Who asked for a way of learning
        gets that one.
        """
        found, method = self.advice, self.model.method
        if not self.options.chooses_nothing or not found or method.network.stem is not None:
            return None
        accuracy = found.baselines[advice.PIXELS]
        other = found.accuracy_compared
        if accuracy <= other + standard_error(other, found.compared):
            return None
        method.drop(task.name)
        parts = (task.train, task.validation)
        rows = torch.cat([method.direct_features(task, each, PIXELS) for each in parts])
        labels = torch.cat([each.labels for each in parts])
        head = logistic_regression(rows, labels, self.seed.child("pixels"))
        others = {**found.baselines, found.kept: other}
        self.advice = replace(  # what is known of mistakes is that of the other learner
            found, accuracy=accuracy, tested=found.compared, kept=advice.PIXELS, baselines=others,
            confused=None, more_pictures=None, some=None,
        )  # fmt: skip
        self.mistakes = None
        return self.directly(task, head, accuracy, found.compared)

    def advise(
        self, task: Task, kept: str, predicted: Tensor, features: Tensor | None = None,
        fit: Fit | None = None, fit_rows: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Compare with baselines, and see what would help."""
        self.advice = advice.advise(
            task, predicted, kept, features=features, fit=fit, fit_rows=fit_rows,
            seed=self.seed.child("advice"),
        )  # fmt: skip
        self.mistakes = mistakes(task, predicted, self.items)

    def in_closed_form(self, task: Task, closed: ClosedForm, known: TaskFacts | None) -> TaskFacts:
        """Let statistics be all that the model knows of the task."""
        model, method = self.model, self.model.method
        method.position = Position()
        count = len(task.train) + len(task.validation)
        self.listener({**begins(method, task), "images": count, "held": count})
        record = TaskRecord(task.classes, task.preprocessing, closed.kept)
        method.learn_in_closed_form(task.name, record)
        model.familiarity[task.name] = closed.familiarity
        facts = self.facts(task, PLANNED, known)
        before = known.images if known else 0
        return replace(facts, accuracy=closed.accuracy, images=before + count, held=count)

    def refine_statistics(self, task: Task, pictures: LoadedPictures, known: TaskFacts) -> Learned:
        """Add pictures to a task in closed form: its statistics become those of all pictures."""
        model, method = self.model, self.model.method
        kept = method.known[task.name].kept
        assert kept is not None
        frozen = FrozenFeatures(method, task, self.seed.child("folds"))
        before, closed = frozen.accuracy_of(kept), frozen.joined(kept)
        none = [0] * len(method.network.rivals())
        if closed.accuracy < before:
            return self.done(ModelFolder.open(model.path), pictures, none, before, kept=False)
        method.drop(task.name)
        self.mistakes = mistakes(task, closed.predicted, self.items)
        facts = self.in_closed_form(task, closed, known)
        tasks = [facts if each == known else each for each in model.tasks]
        return self.done(model.commit(tasks, "refine", task.name), pictures, none, before)

    def refine(self, task: Task, pictures: LoadedPictures, known: TaskFacts) -> Learned:
        """Train a known task further; where that makes it worse, the model stays as it is."""
        model, method = self.model, self.model.method
        old = method.known[task.name]
        method.settings = method.settings.replace(lr=method.settings.lr * REFINING_LR)
        accuracy = Refined()
        stopped = Trainer(method, [*self.callbacks, accuracy]).refine(task)
        none = [0] * len(method.network.rivals())
        if accuracy.after < accuracy.before:
            unchanged = ModelFolder.open(model.path)
            return self.done(unchanged, pictures, none, accuracy.before, kept=False)
        share = len(task.train) / (len(task.train) + known.images)
        remember(method, task, old, share)
        model.familiarity[task.name] = self.statistics(task)
        facts = self.facts(task, stopped, known)
        self.mistakes = mistakes(task, self.answers, self.items)
        tasks = [facts if each == known else each for each in model.tasks]
        made = model.commit(tasks, "refine", task.name)
        return self.done(made, pictures, none, accuracy.before)

    def done(
        self, made: ModelFolder, pictures: LoadedPictures, grown: list[int],
        before: float | None = None, kept: bool = True,
    ) -> Learned:  # fmt: skip
        learned = Learned(
            made.task(self.task), pictures.left_out, pictures.repeated, grown, made.room(),
            peak_memory(), before, kept, made.unsigned, self.advice,
        )  # fmt: skip
        if self.mistakes is not None:
            self.listener(self.mistakes)
        self.listener({"event": "done", **learned.to_dict()})
        return learned

    def read(self, source: PictureSource) -> LoadedPictures:
        """Decode the pictures, as many as memory allows."""
        shape = self.model.description.input_shape
        ancestor = self.model.description.ancestor is not None
        self.memory = budgets.room(shape, source.count, self.options.ram, ancestor)
        chosen = picture_source.sample(source, self.memory.pictures, self.seed.child("some"))
        if chosen.count < source.count:
            self.listener({
                "event": "fewer", "images": chosen.count, "of": source.count, "reason": "memory",
            })  # fmt: skip

        def progress(done: int, count: int) -> None:
            if self.asked_to_stop():
                raise Interrupted
            self.budget.check(f"reading {done:,} of {count:,} pictures")
            if done % 50 == 0 or done == count:
                self.listener({"event": "reading", "done": done, "of": count})

        pictures = picture_source.read(chosen, shape, progress, memory=self.memory.decoding)
        if self.options.strict:
            check_strict(source.place, pictures.left_out)
        if pictures.left_out:
            self.listener({"event": "left_out", "files": [vars(e) for e in pictures.left_out]})
        return pictures

    def divide(self, pictures: LoadedPictures) -> Task:
        """Hold some pictures of every class out."""
        share = limits.held_share(len(pictures.labels))
        known = self.model.description.task(self.task)
        if known:
            check_classes(self.task, known.classes, pictures.classes)
        classes = known.classes if known else pictures.classes
        places = torch.tensor([classes.index(name) for name in pictures.classes])
        labels = places[torch.from_numpy(pictures.labels)]
        examples = Examples(torch.from_numpy(pictures.images), labels)
        kept, held = stratified(examples.labels, share, self.seed.child("held"))
        self.items = [pictures.items[place] for place in torch.cat([kept, held]).tolist()]
        return Task(
            self.task, classes, examples.subset(kept), examples.subset(held),
            self.model.preparation,
        )  # fmt: skip

    def facts(self, task: Task, stopped: str, known: TaskFacts | None) -> TaskFacts:
        """All that is said of the task; its accuracy is measured with its ticket."""
        method, shape = self.model.method, self.model.description.input_shape
        ticket, view = method.ticket(task.name), method.training_view(task)
        images = view.validation.images.to(method.device)
        outputs = ParallelTickets([ticket], [view.preprocessing])(images)
        self.answers = outputs[0].scores.argmax(1).cpu()
        right = self.answers == task.validation.labels
        small = cost(ticket, shape)
        older, network = known.inherited_from if known else (), method.network
        if not known and not network.has_ancestor and not network.is_direct(task.name):
            others = [each.name for each in self.model.tasks[::-1]]
            older = tuple(name for name in others if not network.is_direct(name))
        return TaskFacts(
            name=task.name,
            classes=task.classes,
            images=len(task.train) + (known.images if known else 0),
            held=len(task.validation),
            accuracy=100 * int(right.sum()) / len(right),
            weights=small.weights,
            bytes=1,  # known when it is written
            macs=small.macs,
            seconds=round(self.budget.spent(), 2) + (known.seconds if known else 0),
            steps=method.position.step,
            stopped=stopped,
            refined=known.refined + 1 if known else 0,
            inherited_from=older,
        )

    def statistics(self, task: Task) -> familiarity.FeatureStatistics:
        """What is usual for the task's own pictures, as its ticket reads them."""
        method, view = self.model.method, self.model.method.training_view(task)
        ticket = method.ticket(task.name)
        return familiarity.calibrate(view, ParallelTickets([ticket], [view.preprocessing]))


class GrowthEvent(Callback):
    """Tells when the network grew for a task."""

    def __init__(self, before: list[int], listener: Listener) -> None:
        self.before, self.listener = before, listener

    def on_task_begin(self, trainer: Trainer) -> None:
        assert isinstance(trainer.method, ModelTWTA)
        after = [rivals.units for rivals in trainer.method.network.rivals()]
        if after != self.before:
            self.listener({"event": "grows", "units": after, "before": self.before})


class Refined(Callback):
    """Validation accuracy before refining and after; the last callback, so that `after` is that of
    the best weights, which early stopping has restored."""

    before = after = 0.0

    def on_task_begin(self, trainer: Trainer) -> None:
        self.before = validation_accuracy(trainer)

    def on_train_end(self, trainer: Trainer) -> None:
        self.after = validation_accuracy(trainer)


def remember(method: ModelTWTA, task: Task, old: TaskRecord, share: float) -> None:
    """Join what was kept of the former pictures with the same of the new ones."""
    method.known[task.name] = old
    method.keep(few(task))
    new = method.known[task.name].kept
    assert old.kept is not None
    assert new is not None
    method.known[task.name] = old.with_kept(method.naming_rule().join(old.kept, new, share))
