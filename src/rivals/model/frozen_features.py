"""Learning on the features of an ancestor, which do not change: a head in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.ancestors.ancestor import Ancestor
from rivals.learn.discriminant import discriminant
from rivals.learn.twta import TWTA
from rivals.nn.rival_network import ANCESTOR
from rivals.seeds import Seed
from rivals.streams.stream import folds
from rivals.streams.task import Examples, Task

IMAGES = 64  # computed at once
FOLDS = 5


class FrozenFeatures:
    """The ancestor's features of a task's pictures, and the heads that they make."""

    def __init__(self, method: TWTA, ancestor: Ancestor, task: Task) -> None:
        self.within = ancestor.within
        self.train, self.validation = (
            self._features(method, task, each) for each in (task.train, task.validation)
        )
        self.labels = task.train.labels, task.validation.labels

    @torch.no_grad()
    def _features(self, method: TWTA, task: Task, examples: Examples) -> Tensor:
        network = method.network.learning(False)
        parts = [
            network.flow(task.preprocessing(images.to(method.device)), ANCESTOR).values.cpu()
            for images in examples.images.split(IMAGES)  # type: ignore[no-untyped-call]
        ]
        return torch.cat(parts)

    def head(self) -> tuple[Tensor, Tensor]:
        """Weight and bias from all pictures, those held out as well."""
        rows, labels = self._all()
        return discriminant(rows, labels, self.within)

    def validation_accuracy(self) -> float:
        """Percent right of the held-out pictures, by a head from the others."""
        weight, bias = discriminant(self.train, self.labels[0], self.within)
        scores = self.validation @ weight.T + bias
        return 100 * float((scores.argmax(1) == self.labels[1]).float().mean())

    def cross_validated(self, seed: Seed) -> float:
        """Percent right of all pictures, each by a head from the other folds."""
        rows, labels = self._all()
        right = 0
        for kept, held in folds(labels, FOLDS, seed):
            weight, bias = discriminant(rows[kept], labels[kept], self.within)
            right += int(((rows[held] @ weight.T + bias).argmax(1) == labels[held]).sum())
        return 100 * right / len(labels)

    def _all(self) -> tuple[Tensor, Tensor]:
        return torch.cat([self.train, self.validation]), torch.cat(self.labels)
