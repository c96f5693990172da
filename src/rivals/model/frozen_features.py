"""Learning on the features of an ancestor, which do not change: a head in closed form."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
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
SCALES = [2 ** (step / 4) for step in range(-24, 5)]  # of scores, from 1/64 to 2


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

    def head(self, seed: Seed) -> tuple[Tensor, Tensor, float]:
        """Weight and bias from all pictures, those held out as well; percent right of them.

        Every picture is tested by a head from the other folds. These scores also say how sure the
        head may be: it is scaled so that the right classes are most probable.
        """
        rows, labels = self._all()
        scores = torch.empty(len(labels), int(labels.max()) + 1)
        for kept, held in folds(labels, FOLDS, seed):
            weight, bias = discriminant(rows[kept], labels[kept], self.within)
            scores[held] = rows[held] @ weight.T + bias
        scale = min(SCALES, key=lambda each: float(F.cross_entropy(each * scores, labels)))
        weight, bias = discriminant(rows, labels, self.within)
        accuracy = 100 * float((scores.argmax(1) == labels).float().mean())
        return scale * weight, scale * bias, accuracy

    def validation_accuracy(self) -> float:
        """Percent right of the held-out pictures, by a head from the others."""
        weight, bias = discriminant(self.train, self.labels[0], self.within)
        scores = self.validation @ weight.T + bias
        return 100 * float((scores.argmax(1) == self.labels[1]).float().mean())

    def _all(self) -> tuple[Tensor, Tensor]:
        return torch.cat([self.train, self.validation]), torch.cat(self.labels)
