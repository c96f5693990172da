"""Learning on the features of an ancestor, which do not change: a head in closed form.

Every picture is tested by a head from the other folds. These scores choose how much the covariance
of the ancestor's own classes counts, whether the nearest class mean is better than a discriminant,
whether a covariance of the task is worth its bytes, and how sure the head may be of its answers.
The head itself is then made from all pictures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.learn.linear_head import FOLDS
from rivals.learn.model_twta import ModelTWTA
from rivals.naming.discriminant import (
    MOST_IN_COVARIANCE,
    ClassStatistics,
    Head,
    covariance,
    discriminant,
    head,
)
from rivals.naming.familiarity import FeatureStatistics, density_levels
from rivals.naming.shared_features import SharedFeatures
from rivals.naming.task_statistics import beside_head
from rivals.seeds import Seed
from rivals.streams.stream import folds
from rivals.streams.task import Examples, Task

IMAGES = 32  # computed at once
PRIORS = (30.0, 100.0, 300.0, 1000.0)  # pictures that the ancestor's covariance may count as
OF_A_STEM = (300.0, 1000.0, 3000.0)  # the same for the variance of a stem's many features
ALONE = 300.0  # where it is the only one, the number says nothing
SCALES = [2 ** (step / 4) for step in range(-24, 5)]  # of scores, from 1/64 to 2
WORTH_COVARIANCE = 1.0  # points that a covariance of the task must gain, for it costs bytes

Part = tuple[Tensor, ClassStatistics]  # places of pictures, and the statistics of all others


@dataclass(frozen=True)
class ClosedForm:
    """A head from statistics, and how good it is."""

    kept: dict[str, Tensor]  # the statistics of all pictures, with prior and scale
    familiarity: FeatureStatistics
    scores: Tensor  # (n, classes): of every picture by a head from the others
    labels: Tensor  # (n,)

    @property
    def predicted(self) -> Tensor:
        """(n,): the classes that these heads answer."""
        return self.scores.argmax(1)

    @property
    def nearest_mean(self) -> bool:
        """Whether the nearest class mean decides, not a discriminant."""
        return float(self.kept["prior"]) == 0

    @property
    def accuracy(self) -> float:
        """Percent right, cross-validated."""
        return 100 * float((self.predicted == self.labels).float().mean())


def few_directions(rows: Tensor) -> Tensor:
    """The rows (n, d) along as many directions as there are rows, if these are fewer: (n, k)."""
    if rows.shape[1] <= len(rows):
        return rows
    exact = rows.double()
    directions: Tensor = torch.linalg.qr(exact.T)[0]
    return (exact @ directions).float()


def best_scale(scores: Tensor, labels: Tensor) -> float:
    """What to multiply scores with, so that the right classes are most probable."""
    return min(SCALES, key=lambda scale: loss_of(scale * scores, labels))


def loss_of(scores: Tensor, labels: Tensor) -> float:
    return float(F.cross_entropy(scores, labels))


class FrozenFeatures:
    """The ancestor's features of a task's pictures, and the heads that they make."""

    def __init__(self, method: ModelTWTA, task: Task, seed: Seed) -> None:
        self.within, self.seed, self.classes = method.network.within.cpu(), seed, len(task.classes)
        self.naming = SharedFeatures(method.network.space)
        view = method.training_view(task)
        self.train, self.validation = (
            self._features(method, view, each) for each in (view.train, view.validation)
        )
        self.train_labels, self.validation_labels = task.train.labels, task.validation.labels

    @torch.no_grad()
    def _features(self, method: ModelTWTA, task: Task, examples: Examples) -> Tensor:
        network = method.network
        network.learning(False)
        parts = [
            network.shared_features(task.preprocessing(images.to(method.device))).cpu()
            for images in examples.images.split(IMAGES)  # type: ignore[no-untyped-call]
        ]
        return torch.cat(parts)

    @cached_property
    def rows(self) -> Tensor:
        """Of all pictures, those held out as well: (n, d)."""
        return torch.cat([self.train, self.validation])

    @cached_property
    def few_rows(self) -> Tensor:
        """The rows along as many directions as there are pictures, where a stem gives more: (n, k).

        Where one variance stands for what is not known, the directions in which no picture lies
        say nothing: scores are the same, and take a hundredth of the time.
        """
        return self.rows if self.within.dim() == 2 else few_directions(self.rows)

    def fit(self, closed: ClosedForm) -> Callable[[Tensor, Tensor], Head]:
        """How heads like that one are made, of `few_rows`."""
        if self.within.dim() == 2:
            return partial(discriminant, within=self.within)
        return partial(discriminant, within=self.within, prior=float(closed.kept["prior"]))

    @cached_property
    def labels(self) -> Tensor:
        return torch.cat([self.train_labels, self.validation_labels])

    def closed_form(self) -> ClosedForm:
        """The head from all pictures."""
        parts = list(self._parts(self.few_rows))
        others = [(ALONE, False), *((prior, True) for prior in PRIORS)]
        if self.within.dim() == 1:  # of a stem no covariance is known but that of the task
            known = self.rows.shape[1] <= MOST_IN_COVARIANCE
            others = [(prior, True) for prior in OF_A_STEM if known]
        options = {
            (prior, own): self._scores(parts, prior, own) for prior, own in [(0.0, False), *others]
        }
        (prior, own), scale = self._choose(options)
        whole = ClassStatistics.of(self.rows, self.labels, self.classes)
        return self._made(whole, parts, prior, own, scale, options[prior, own], self._named)

    def joined(self, known: dict[str, Tensor]) -> ClosedForm:
        """The head from these pictures and those whose statistics are known.

        Every new picture is tested by a head from the known ones and the new ones of other folds.
        """
        old, prior = ClassStatistics.from_tensors(known), float(known["prior"])
        own = old.scatter is not None
        parts = [(held, old.join(part)) for held, part in self._parts(self.rows)]
        scores = self._scores(parts, prior, own)
        whole = old.join(ClassStatistics.of(self.rows, self.labels, self.classes))
        named = self.naming.join(known, self._named)
        return self._made(whole, parts, prior, own, best_scale(scores, self.labels), scores, named)

    @cached_property
    def _named(self) -> dict[str, Tensor]:
        """What names the task, beside the head."""
        return self.naming.kept(self.rows, self.labels, self.classes)

    def _parts(self, rows: Tensor) -> Iterator[Part]:
        """For each fold the pictures that are left out, and the statistics of the others."""
        for kept, held in folds(self.labels, FOLDS, self.seed):
            yield held, ClassStatistics.of(rows[kept], self.labels[kept], self.classes)

    def _scores(self, parts: list[Part], prior: float, own: bool) -> Tensor:
        """Of every picture, by a head without it: (n, classes)."""
        scores = torch.empty(len(self.labels), self.classes)
        for held, statistics in parts:
            weight, bias = self._head(statistics, prior, own)
            scores[held] = self._like(statistics)[held] @ weight.T + bias
        return scores

    def _like(self, statistics: ClassStatistics) -> Tensor:
        """The rows that statistics are of: all directions, or few."""
        same = statistics.means.shape[1] == self.rows.shape[1]
        return self.rows if same else self.few_rows

    def _made(
        self, whole: ClassStatistics, parts: list[Part], prior: float, own: bool, scale: float,
        scores: Tensor, named: dict[str, Tensor],
    ) -> ClosedForm:  # fmt: skip
        def stored(statistics: ClassStatistics) -> dict[str, Tensor]:
            return (statistics if own else statistics.without_scatter()).tensors()

        densities = torch.empty(len(self.labels))
        for held, statistics in parts:
            like = FeatureStatistics.of_statistics(stored(statistics), self.within, prior)
            rows = self._like(statistics)
            densities[held] = like.log_density(rows[held])
            missing = self.rows.shape[1] - rows.shape[1]
            if missing:  # there the density has one variance, and no row is apart from the means
                left = prior * self.within / (prior + statistics.freedom) if own else self.within
                densities[held] -= missing / 2 * float(torch.log(2 * math.pi * left))
        kept = stored(whole)
        levels = density_levels(densities)
        familiarity = FeatureStatistics.of_statistics(kept, self.within, prior, levels)
        kept |= {"prior": torch.tensor([prior]), "scale": torch.tensor([scale])}
        kept |= beside_head(named)
        return ClosedForm(kept, familiarity, scale * scores, self.labels)

    def _head(self, statistics: ClassStatistics, prior: float, own: bool) -> Head:
        used = statistics if own else statistics.without_scatter()
        return head(used.means, covariance([used], self.within, prior))

    def _choose(
        self, options: dict[tuple[float, bool], Tensor]
    ) -> tuple[tuple[float, bool], float]:
        """The prior, whether the task's own covariance is used, and the scale of scores."""

        best = {key: best_scale(scores, self.labels) for key, scores in options.items()}
        loss = {key: loss_of(best[key] * each, self.labels) for key, each in options.items()}
        without = min((key for key in options if not key[1]), key=loss.__getitem__)
        chosen = min((key for key in options if key[1]), key=loss.__getitem__, default=without)
        right = [options[key].argmax(1) == self.labels for key in (chosen, without)]
        gained, lost = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
        least = WORTH_COVARIANCE / 100 * len(self.labels)
        if self.within.dim() == 1:  # of very many features: more than chance explains, too
            least = max(least, math.sqrt(gained + lost))
        return (chosen, best[chosen]) if gained - lost > least else (without, best[without])

    def accuracy_of(self, kept: dict[str, Tensor]) -> float:
        """Percent right of all pictures, by a head from statistics of others."""
        statistics = ClassStatistics.from_tensors(kept)
        weight, bias = self._head(statistics, float(kept["prior"]), own=True)
        return 100 * float(((self.rows @ weight.T + bias).argmax(1) == self.labels).float().mean())

    def first_head(self, closed: ClosedForm) -> Head:
        """The same head from the training pictures alone, so that those held out stay unseen."""
        statistics = ClassStatistics.of(self.train, self.train_labels, self.classes)
        own = "covariance" in closed.kept
        weight, bias = self._head(statistics, float(closed.kept["prior"]), own)
        return float(closed.kept["scale"]) * weight, float(closed.kept["scale"]) * bias

    def validation_accuracy(self, closed: ClosedForm) -> float:
        """Percent right of the held-out pictures, by that head."""
        weight, bias = self.first_head(closed)
        right = (self.validation @ weight.T + bias).argmax(1) == self.validation_labels
        return 100 * float(right.float().mean())
