"""Naming the task of an image that comes without one: every task scores it, the best score wins.

confidence          the largest probability that the ticket gives
entropy             how little the ticket's probabilities are spread
energy              log-sum-exp of the ticket's scores, standardised
features            log-density of the ticket's features around its class means, standardised
pixels              log-density of the image itself, made small, among those of the task
pixels+confidence   how probable image and class are together: the two, the first one tempered

What a rule must remember of a task is computed once, when the task is learned, from its training
and validation data. Scores of several tickets need a common scale. Probabilities and densities of
pixels have one; energies and features live in each ticket's own space, so they are standardised by
their mean and deviation on validation data. docs/task-inference.md has numbers for every rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.methods import gaussian
from rivals.tasks import Examples, Task
from rivals.tickets.together import Reading

SIDE = 8  # pixels of an image made small
TEMPER = 0.03  # pixels go together, so their density says less than it seems: chosen on validation
CHUNK = 64  # images made small at a time

Read = Callable[[Tensor], Reading]
Kept = dict[str, Tensor]


class Rule(ABC):
    """A way to say how much a task recognises an image."""

    def keep(self, task: Task, read: Read) -> Kept:
        """What must be remembered of `task`; `read` is its ticket."""
        return {}

    def view(self, images: Tensor) -> Tensor:
        """What the rule looks at of raw images, computed once for all tasks."""
        return images

    @abstractmethod
    def score(self, view: Tensor, reading: Reading, kept: Kept) -> Tensor:
        """For a view of images and what the task's ticket makes of them: (n,), larger is better."""


class Output(Rule):
    """A function of the scores (n, classes) that a ticket gives."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def score(self, view: Tensor, reading: Reading, kept: Kept) -> Tensor:
        return self.function(reading.scores)


class Features(Rule):
    """Near a class mean in the space that the head reads."""

    def keep(self, task: Task, read: Read) -> Kept:
        return gaussian.fit(read(task.train.images).features, task.train.labels)

    def score(self, view: Tensor, reading: Reading, kept: Kept) -> Tensor:
        return gaussian.log_density(reading.features, kept)


class Pixels(Rule):
    """One normal density of the images of a task: needs no ticket, and outlives its changes."""

    def keep(self, task: Task, read: Read) -> Kept:
        rows = torch.cat([small(images) for images in torch.split(task.train.images, CHUNK)])
        return gaussian.fit(rows, torch.zeros(len(rows)))

    def view(self, images: Tensor) -> Tensor:
        return small(images)

    def score(self, view: Tensor, reading: Reading, kept: Kept) -> Tensor:
        return gaussian.log_density(view, kept)


class PixelsAndConfidence(Pixels):
    """log p(image, class | task), the density of the image being tempered."""

    def score(self, view: Tensor, reading: Reading, kept: Kept) -> Tensor:
        sure = torch.log_softmax(reading.scores, 1).max(1).values
        return sure + TEMPER * super().score(view, reading, kept)


class Standardised(Rule):
    """Another rule's scores in deviations from what is usual for the task's own images."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def keep(self, task: Task, read: Read) -> Kept:
        kept = self.rule.keep(task, read)
        own = calibration(task).images
        scores = self.rule.score(self.rule.view(own), read(own), kept)
        spread = scores.std(correction=0).clamp(min=1e-6)
        return {**kept, "level": scores.mean().view(1), "spread": spread.view(1)}

    def view(self, images: Tensor) -> Tensor:
        return self.rule.view(images)

    def score(self, view: Tensor, reading: Reading, kept: Kept) -> Tensor:
        return (self.rule.score(view, reading, kept) - kept["level"]) / kept["spread"]


def name_tasks(
    rule: Rule, images: Tensor, readings: Sequence[Reading], kept: Sequence[Kept]
) -> tuple[Tensor, Tensor, Tensor]:
    """For each image the task, the class within it, and how sure its ticket is: (n,) each."""
    view = rule.view(images)
    scores = [rule.score(view, *pair) for pair in zip(readings, kept, strict=True)]
    which = torch.stack(scores).argmax(0, keepdim=True)  # (tasks, n) → (1, n)
    best = [torch.softmax(reading.scores, 1).max(1) for reading in readings]
    labels = torch.stack([each.indices for each in best]).gather(0, which)
    sure = torch.stack([each.values for each in best]).gather(0, which)
    return which[0], labels[0], sure[0]


def calibration(task: Task) -> Examples:
    """Validation examples, which a ticket was not fitted to; training ones where there are none."""
    return task.validation if len(task.validation) else task.train


def small(images: Tensor) -> Tensor:
    """Raw images as short rows, (n, channels · at most 8 · 8); the same for every task."""
    values = images.float() / 255
    height, width = values.shape[2:]
    return F.adaptive_avg_pool2d(values, (min(SIDE, height), min(SIDE, width))).flatten(1)


def confidence(scores: Tensor) -> Tensor:
    return torch.softmax(scores, 1).max(1).values


def negative_entropy(scores: Tensor) -> Tensor:
    logs = torch.log_softmax(scores, 1)
    return (logs.exp() * logs).sum(1)


def energy(scores: Tensor) -> Tensor:
    return torch.logsumexp(scores, 1)


RULES: dict[str, Rule] = {
    "confidence": Output(confidence),
    "entropy": Output(negative_entropy),
    "energy": Standardised(Output(energy)),
    "features": Standardised(Features()),
    "pixels": Pixels(),
    "pixels+confidence": PixelsAndConfidence(),
}
