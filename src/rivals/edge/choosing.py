"""What a task in closed form keeps: chosen as the full package chooses, by cross-validation.

Every picture is tested by a head from the other folds. The scores choose how much the covariance of
the ancestor's own classes counts, whether a covariance of the task is worth its bytes, and how sure
the head may be. rivals/model/frozen_features.py and edge_discriminant.py do the same with torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rivals.naming.class_sums import (
    Array,
    ClassSums,
    LinearHead,
    density_of,
    levels_of,
    linear_head,
    log_density,
    log_softmax,
    scores_of,
    shared_covariance,
)
from rivals.naming.feature_space import FeatureSpace
from rivals.naming.task_statistics import TaskStatistics, beside_head
from rivals.seeds import Seed
from rivals.streams.label_splits import fold_places

FOLDS = 10
PRIORS = (30.0, 100.0, 300.0, 1000.0)  # pictures that the ancestor's covariance may count as
ALONE = 300.0  # where it is the only one, the number says nothing
OF_EDGES = (300.0, 1000.0)  # pictures that one variance for all directions may count as
SCALES = [2 ** (step / 4) for step in range(-24, 5)]  # of scores, from 1/64 to 2
WORTH_COVARIANCE = 1.0  # points that a covariance of the task must gain, for it costs bytes

Choice = tuple[float, bool]  # the prior, and whether the task's own covariance is used


def loss_of(scores: Array, labels: Array) -> float:
    return -float(log_softmax(scores)[np.arange(len(labels)), labels].mean())


def best_scale(scores: Array, labels: Array) -> float:
    """What to multiply scores with, so that the right classes are most probable."""
    return min(SCALES, key=lambda scale: loss_of(np.float32(scale) * scores, labels))


@dataclass(frozen=True)
class ChosenHead:
    """What is stored of a task in closed form, and how good it is."""

    kept: dict[str, Array]  # the sums of all pictures, with prior and scale
    levels: Array  # of familiarity
    predicted: Array  # (n,): the class of every picture by a head from the others
    labels: Array  # (n,)

    @property
    def accuracy(self) -> float:
        """Percent right, cross-validated."""
        return 100 * float((self.predicted == self.labels).mean())


class TaskFeatures:
    """The ancestor's features of a task's pictures, and the heads that they make."""

    def __init__(
        self, rows: Array, labels: Array, classes: int, within: Array, space: FeatureSpace,
        seed: Seed,
    ) -> None:  # fmt: skip
        self.rows, self.labels, self.classes, self.within = rows, labels, classes, within
        self.space = space
        self.parts = [
            (held, ClassSums.of(rows[kept], labels[kept], classes))
            for kept, held in fold_places(labels, FOLDS, seed)
        ]

    @cached_property
    def whole(self) -> ClassSums:
        return ClassSums.of(self.rows, self.labels, self.classes)

    def chosen(self) -> ChosenHead:
        """The head from all pictures."""
        choices: list[Choice] = [(0.0, False), (ALONE, False), *((p, True) for p in PRIORS)]
        scores = {choice: self._scores(self.parts, choice) for choice in choices}
        scale = {choice: best_scale(each, self.labels) for choice, each in scores.items()}
        loss = {c: loss_of(np.float32(scale[c]) * scores[c], self.labels) for c in choices}
        without = min((c for c in choices if not c[1]), key=loss.__getitem__)
        best = min((c for c in choices if c[1]), key=loss.__getitem__)
        right = [scores[c].argmax(1) == self.labels for c in (best, without)]
        gained, lost = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
        if gained - lost <= WORTH_COVARIANCE / 100 * len(self.labels):
            best = without
        return self._made(self.whole, self.parts, best, scale[best], scores[best], self.named)

    def joined(self, known: Mapping[str, Array]) -> ChosenHead:
        """The head from these pictures and those whose sums are known."""
        old = ClassSums.from_stored(known)
        choice = float(known["prior"][0]), old.scatter is not None
        parts = [(held, old.join(part)) for held, part in self.parts]
        scores = self._scores(parts, choice)
        scale = best_scale(scores, self.labels)
        named = TaskStatistics.from_stored(known, self.space).join(self.named)
        return self._made(old.join(self.whole), parts, choice, scale, scores, named)

    @cached_property
    def named(self) -> TaskStatistics:
        """What names the task, beside the head."""
        return TaskStatistics.of(self.rows, self.labels, self.classes, self.space)

    def accuracy_of(self, known: Mapping[str, Array]) -> float:
        """Percent right of all pictures, by a head from the sums of others."""
        found = self._head(ClassSums.from_stored(known), (float(known["prior"][0]), True))
        return 100 * float((scores_of(self.rows, found).argmax(1) == self.labels).mean())

    def _head(self, sums: ClassSums, choice: Choice) -> LinearHead:
        prior, own = choice
        used = sums if own else sums.without_scatter()
        return linear_head(used.means, shared_covariance([used], self.within, prior))

    def _scores(self, parts: list[tuple[Array, ClassSums]], choice: Choice) -> Array:
        """Of every picture, by a head without it: (n, classes)."""
        scores = np.empty((len(self.labels), self.classes), np.float32)
        for held, sums in parts:
            scores[held] = scores_of(self.rows[held], self._head(sums, choice))
        return scores

    def _made(
        self, whole: ClassSums, parts: list[tuple[Array, ClassSums]], choice: Choice, scale: float,
        scores: Array, named: TaskStatistics,
    ) -> ChosenHead:  # fmt: skip
        prior, own = choice

        def stored(sums: ClassSums) -> dict[str, Array]:
            return (sums if own else sums.without_scatter()).stored()

        densities = np.empty(len(self.labels), np.float32)
        for held, sums in parts:
            density = stored_density(stored(sums), self.within, prior)
            densities[held] = log_density(self.rows[held], density)
        kept = stored(whole)
        kept |= {"prior": np.array([prior], np.float32), "scale": np.array([scale], np.float32)}
        kept |= beside_head(named.stored(self.space))
        return ChosenHead(kept, levels_of(densities), scores.argmax(1), self.labels)


def stored_head(kept: Mapping[str, Array], within: Array) -> LinearHead:
    """The head that follows from the stored sums of a task."""
    sums, scale = ClassSums.from_stored(kept), kept["scale"][0]
    spread = shared_covariance([sums], within, float(kept["prior"][0]))
    weight, bias = linear_head(sums.means, spread)
    return scale * weight, scale * bias


def stored_density(kept: Mapping[str, Array], within: Array, prior: float) -> dict[str, Array]:
    """The density that follows from them."""
    sums = ClassSums.from_stored(kept)
    return density_of(sums.means, shared_covariance([sums], within, prior))


class EdgeHead:
    """A discriminant of the edges of a task's pictures, which is tried beside the ancestor."""

    def __init__(self, rows: Array, labels: Array, classes: int, seed: Seed) -> None:
        self.rows, self.labels, self.classes = rows, labels, classes
        self.few_rows = few_directions(rows)
        splits = list(fold_places(labels, FOLDS, seed))
        scores = {prior: self._scores(splits, prior) for prior in OF_EDGES}
        scale = {prior: best_scale(each, labels) for prior, each in scores.items()}
        self.prior = min(OF_EDGES, key=lambda p: loss_of(np.float32(scale[p]) * scores[p], labels))
        self.scale, self.predicted = scale[self.prior], scores[self.prior].argmax(1)

    @property
    def accuracy(self) -> float:
        """Percent right, cross-validated."""
        return 100 * float((self.predicted == self.labels).mean())

    def beats(self, predicted: Array) -> bool:
        """Whether it is better than other answers for the same pictures, by more than chance."""
        mine, other = (each == self.labels for each in (self.predicted, predicted))
        gained, lost = int((mine & ~other).sum()), int((other & ~mine).sum())
        return gained - lost > math.sqrt(gained + lost)

    def head(self) -> LinearHead:
        """From all pictures, as sure of its answers as cross-validation allows."""
        weight, bias = self._fit(self.rows, self.labels, self.prior)
        scale = np.float32(self.scale)
        return scale * weight, scale * bias

    def _scores(self, splits: list[tuple[Array, Array]], prior: float) -> Array:
        scores = np.empty((len(self.labels), self.classes), np.float32)
        for learned, tested in splits:
            found = self._fit(self.few_rows[learned], self.labels[learned], prior)
            scores[tested] = scores_of(self.few_rows[tested], found)
        return scores

    def _fit(self, rows: Array, labels: Array, prior: float) -> LinearHead:
        """One variance stands for all directions, also where few are left."""
        sums = ClassSums.of(rows, labels, self.classes)
        apart = np.square(rows - sums.means[labels]).sum() / (len(rows) * self.rows.shape[1])
        within = np.array([apart], np.float32)
        return linear_head(sums.means, shared_covariance([sums], within, prior))


def few_directions(rows: Array) -> Array:
    """The rows (n, d) along as many directions as there are rows, if these are fewer: (n, k)."""
    if rows.shape[1] <= len(rows):
        return rows
    exact = rows.astype(np.float64)
    found: Array = (exact @ np.linalg.qr(exact.T)[0]).astype(np.float32)
    return found
