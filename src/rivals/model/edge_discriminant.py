"""Learning by edges alone: a linear discriminant of where edges are and which way they run.

An ancestor saw photographs. Of digits, letters and drawings it says little, and edges say much. The
discriminant costs a second, so it is tried beside the ancestor's features for every task, and kept
where it names more pictures than chance explains.
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from rivals.learn.linear_head import FOLDS, held_out_rows, held_out_scores
from rivals.learn.model_twta import ModelTWTA
from rivals.model.frozen_features import best_scale, few_directions, loss_of
from rivals.naming.discriminant import Head, discriminant
from rivals.nn.stem import EDGES
from rivals.seeds import Seed
from rivals.streams.stream import folds
from rivals.streams.task import Task

PRIORS = (300.0, 1000.0)  # pictures that one variance for all directions may count as


class EdgeDiscriminant:
    """The edges of a task's pictures, and the discriminants that they make."""

    def __init__(self, method: ModelTWTA, task: Task, seed: Seed) -> None:
        parts = (task.train, task.validation)
        self.rows = torch.cat([method.direct_features(task, each, EDGES) for each in parts])
        self.labels = torch.cat([each.labels for each in parts])
        self.learned = len(task.train)  # the first rows; the others are held out
        self.splits = list(folds(self.labels, FOLDS, seed))
        self.few_rows = few_directions(self.rows)
        scores = {prior: self._scores(prior) for prior in PRIORS}
        best = {prior: best_scale(each, self.labels) for prior, each in scores.items()}
        self.prior = min(
            PRIORS, key=lambda prior: loss_of(best[prior] * scores[prior], self.labels)
        )
        self.scale, self.predicted = best[self.prior], scores[self.prior].argmax(1)

    @property
    def accuracy(self) -> float:
        """Percent right, cross-validated."""
        return 100 * float((self.predicted == self.labels).float().mean())

    @cached_property
    def head(self) -> Head:
        """From all pictures, as sure of its answers as cross-validation allows."""
        weight, bias = self.fit(self.rows, self.labels)
        return self.scale * weight, self.scale * bias

    def fit(self, rows: Tensor, labels: Tensor) -> Head:
        """How such heads are made, of all directions or of few."""
        return self._fit(rows, labels, self.prior)

    def validation_accuracy(self) -> float:
        """Percent right of the held-out pictures, by a head from the others."""
        weight, bias = self.fit(self.few_rows[: self.learned], self.labels[: self.learned])
        found = (self.few_rows[self.learned :] @ weight.T + bias).argmax(1)
        return 100 * float((found == self.labels[self.learned :]).float().mean())

    def beats(self, predicted: Tensor) -> bool:
        """Whether it is better than other answers for the same pictures, by more than chance."""
        mine, other = (each == self.labels for each in (self.predicted, predicted))
        gained, lost = int((mine & ~other).sum()), int((other & ~mine).sum())
        return gained - lost > math.sqrt(gained + lost)

    def _scores(self, prior: float) -> Tensor:
        """Of every picture, by a head without it: (n, classes)."""

        def fit(rows: Tensor, labels: Tensor) -> Head:
            return self._fit(rows, labels, prior)

        found = held_out_scores(self.few_rows, self.labels, fit, self.splits)
        scores = torch.empty_like(found)
        scores[held_out_rows(self.splits)] = found
        return scores

    def _fit(self, rows: Tensor, labels: Tensor, prior: float) -> Head:
        """One variance stands for all directions: that of all 512, also where few are left."""
        classes = int(labels.max()) + 1
        means = torch.zeros(classes, rows.shape[1]).index_add_(0, labels, rows)
        means /= torch.bincount(labels).unsqueeze(1)
        apart = (rows - means[labels]).square().sum() / (len(rows) * self.rows.shape[1])
        return discriminant(rows, labels, apart.view(1), prior)
