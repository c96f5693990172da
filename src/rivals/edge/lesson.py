"""Learning a task without torch: pictures in, what its file holds out. Nothing is written here.

    read ─► hold some out ─► features ─► closed form, or edges where they are better

The order of pictures and all draws are those of the full package (rivals/model/learning.py), so
that both choose the same of the same pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rivals.edge.array_file import Arrays
from rivals.edge.choosing import EdgeHead, TaskFeatures
from rivals.edge.direct_inputs import DIRECTIONS, LEAST
from rivals.edge.known_tasks import CLOSED_FORM, KnownTasks, StoredTask
from rivals.io.process_memory import available_memory
from rivals.model import limits
from rivals.model.lesson_checks import check_classes, check_strict
from rivals.model.manifest import TaskFacts
from rivals.naming.class_sums import Array, fitted_density, levels_of, log_density
from rivals.naming.task_statistics import TaskStatistics
from rivals.seeds import Seed
from rivals.streams import picture_source
from rivals.streams.label_splits import stratified_places
from rivals.streams.picture_source import LoadedPictures, PictureSource, Reads

AT_ONCE = 32  # pictures whose features are computed together
PART_OF_FREE = 0.4  # of the free memory that pictures and their features may take
OF_A_PICTURE = 16_000  # bytes: its features and edges, with 32 and with 64 bits
FEWEST = 40  # pictures that are learned from, however little memory is free
STATISTICS = 4000  # pictures that the statistics of a direct task are taken from, at most
NEAREST, EDGES = "nearest mean", "edges"
LEARNERS = {  # in words
    CLOSED_FORM: "a linear discriminant",
    NEAREST: "the nearest class mean",
    EDGES: "a linear discriminant on edges",
}


@dataclass(frozen=True)
class LearnedTask:
    """What came of a lesson, before it is written."""

    facts: TaskFacts  # without a file
    arrays: Arrays  # of its file
    learner: str  # a key of LEARNERS
    before: float | None = None  # accuracy on the new pictures before they were added
    worse: bool = False  # adding them made it worse, so nothing should be written


def read_pictures(
    known: KnownTasks, source: PictureSource, task: str, strict: bool, progress: Reads | None
) -> LoadedPictures:
    """Decode the pictures of a task, as many as memory allows."""
    shape = known.content.input_shape
    each = 2 * int(np.prod(shape)) + OF_A_PICTURE
    most = max(FEWEST, int(available_memory() * PART_OF_FREE) // each)
    chosen = picture_source.sample(source, most, seed_of(known, task).child("some"))
    found = picture_source.read(chosen, shape, progress)
    if strict:
        check_strict(source.place, found.left_out)
    return found


def seed_of(known: KnownTasks, task: str) -> Seed:
    return Seed(known.content.seed).child("device", task)


class Lesson:
    """The pictures of a task in the order in which they are learned, those held out last."""

    def __init__(
        self, known: KnownTasks, task: str, pictures: LoadedPictures, old: StoredTask | None
    ) -> None:
        self.known, self.task, self.old = known, task, old
        self.seed, self.classes = seed_of(known, task), pictures.classes
        labels = pictures.labels
        if old:
            check_classes(task, old.classes, pictures.classes)
            self.classes = old.classes
            labels = np.array([old.classes.index(name) for name in pictures.classes])[labels]
        share = limits.held_share(len(labels))
        learned, held = stratified_places(labels, share, self.seed.child("held"))
        self.order, self.held = np.concatenate([learned, held]), len(held)
        self.images, self.labels = pictures.images, labels[self.order]
        self.edges, self.space = np.empty((0, 0), np.float32), known.ancestor.space
        self.rows = self._features()

    def _features(self) -> Array:
        """The ancestor's features of all pictures; the edges of the picture beside them."""
        rows, edges = [], []
        for at in range(0, len(self.order), AT_ONCE):
            inputs = self.known.inputs(self.images[self.order[at : at + AT_ONCE]])
            rows.append(inputs.features)
            if not self.old and min(self.known.content.input_shape[1:]) >= LEAST:
                edges.append(inputs.direct(EDGES))
        if edges:
            self.edges = np.concatenate(edges)
        return np.concatenate(rows)

    def learn(self) -> LearnedTask:
        """What the pictures make, or they and those that the task was learned from before."""
        seed = self.seed.child("folds")
        found = TaskFeatures(
            self.rows, self.labels, len(self.classes), self.known.within, self.space, seed
        )
        if self.old:
            before, chosen = found.accuracy_of(self.old.kept), found.joined(self.old.kept)
        else:
            before, chosen = None, found.chosen()
            if len(self.edges):
                edges = EdgeHead(self.edges, self.labels, len(self.classes), seed)
                if edges.beats(chosen.predicted):
                    return self._directly(edges)
        arrays = {f"kept.{name}": each for name, each in chosen.kept.items()}
        arrays["levels"] = chosen.levels
        body, (_, height, width) = self.known.body, self.known.content.input_shape
        head = len(self.classes) * self.rows.shape[1]
        macs = body.multiplications(height, width) + head
        facts = self._facts(chosen.accuracy, body.weights + head, macs)
        learner = CLOSED_FORM if float(chosen.kept["prior"][0]) else NEAREST
        worse = before is not None and chosen.accuracy < before
        return LearnedTask(facts, arrays, learner, before, worse)

    def _directly(self, edges: EdgeHead) -> LearnedTask:
        """A head on the edges of the picture is all of the task; statistics of the ancestor's
        features are kept to name it by."""
        few = few_places(self.labels[: -self.held], len(self.classes))
        named = TaskStatistics.of(self.rows[few], self.labels[few], len(self.classes), self.space)
        density = fitted_density(self.edges[few], self.labels[few])
        levels = levels_of(log_density(self.edges[-self.held :], density))
        weight, bias = edges.head()
        arrays = {f"kept.{name}": each for name, each in named.stored(self.space).items()}
        arrays |= {f"features.{name}": each for name, each in density.items()}
        arrays |= {"direct.weight": weight[..., None], "direct.bias": bias, "levels": levels}
        _, height, width = self.known.content.input_shape
        filters = DIRECTIONS * LEAST**2 * (height - LEAST + 1) * (width - LEAST + 1)
        facts = self._facts(edges.accuracy, weight.size, weight.size + filters)
        return LearnedTask(facts, arrays, EDGES)

    def _facts(self, accuracy: float, weights: int, macs: int) -> TaskFacts:
        old, count = self.old.facts if self.old else None, len(self.labels)
        return TaskFacts(
            name=self.task, classes=tuple(self.classes),
            images=count + (old.images if old else 0), held=count, accuracy=accuracy,
            weights=weights + len(self.classes), bytes=1, macs=macs,
            seconds=old.seconds if old else 0.0, steps=0, stopped="planned",
            refined=old.refined + 1 if old else 0, inherited_from=(),
        )  # fmt: skip


def few_places(labels: Array, classes: int) -> Array:
    """Places of at most STATISTICS pictures, evenly of all classes."""
    if len(labels) <= STATISTICS:
        return np.arange(len(labels))
    each, found = max(2, STATISTICS // classes), []
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        found.append(members[:: max(1, len(members) // each)][:each])
    return np.concatenate(found)
