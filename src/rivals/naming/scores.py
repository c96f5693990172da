"""Rules that score an image task by task: the best score names the task, its ticket the class.

What a rule must remember of a task is computed once, when the task is learned, from its training
and validation data. Scores of several tickets need a common scale. Probabilities and densities of
pixels have one; energies and features are in each ticket's own space, so they are standardised by
their mean and deviation on validation data.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.naming import gaussian
from rivals.naming.rule import PER_CLASS, Kept, Read, ReadAll, Rule, TaskNamer
from rivals.streams.task import Examples, Task
from rivals.tickets.parallel import TicketOutput

SIDE = 8  # pixels of an image made small
TEMPER = 0.03  # pixels go together, so their density says less than it seems: chosen on validation
CHUNK = 64  # images made small at a time


class Score(Rule):
    """A score of how well a task recognises an image."""

    def namer(self, kept: Sequence[Kept], read: ReadAll) -> TaskNamer:
        return BestScore(self, kept)

    def view(self, images: Tensor) -> Tensor:
        """What the rule looks at of raw images, computed once for all tasks."""
        return images

    @abstractmethod
    def score(self, view: Tensor, output: TicketOutput, kept: Kept) -> Tensor:
        """For a view of images and what the task's ticket makes of them: (n,), larger is better."""


class Output(Score):
    """A function of the scores (n, classes) that a ticket gives."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def score(self, view: Tensor, output: TicketOutput, kept: Kept) -> Tensor:
        return self.function(output.scores)


class Features(Score):
    """Near a class mean in the space that the head reads."""

    def keep(self, task: Task, read: Read, per_class: int = PER_CLASS) -> Kept:
        return gaussian.fit(read(task.train.images).features, task.train.labels)

    def score(self, view: Tensor, output: TicketOutput, kept: Kept) -> Tensor:
        return gaussian.log_density(output.features, kept)


class Pixels(Score):
    """One normal density of the images of a task: needs no ticket, and outlives its changes."""

    def keep(self, task: Task, read: Read, per_class: int = PER_CLASS) -> Kept:
        rows = torch.cat([small(images) for images in torch.split(task.train.images, CHUNK)])
        return gaussian.fit(rows, torch.zeros(len(rows)))

    def join(self, one: Kept, other: Kept, share: float) -> Kept:
        return gaussian.join(one, other, share)

    def view(self, images: Tensor) -> Tensor:
        return small(images)

    def score(self, view: Tensor, output: TicketOutput, kept: Kept) -> Tensor:
        return gaussian.log_density(view, kept)


class PixelsAndConfidence(Pixels):
    """log p(image, class | task), the density of the image being tempered."""

    def score(self, view: Tensor, output: TicketOutput, kept: Kept) -> Tensor:
        confidence = torch.log_softmax(output.scores, 1).max(1).values
        return confidence + TEMPER * super().score(view, output, kept)


class Standardised(Score):
    """Another rule's scores in deviations from what is usual for the task's own images."""

    def __init__(self, rule: Score) -> None:
        self.rule = rule

    def keep(self, task: Task, read: Read, per_class: int = PER_CLASS) -> Kept:
        kept = self.rule.keep(task, read, per_class)
        own = calibration(task).images
        scores = self.rule.score(self.rule.view(own), read(own), kept)
        spread = scores.std(correction=0).clamp(min=1e-6)
        return {**kept, "level": scores.mean().view(1), "spread": spread.view(1)}

    def view(self, images: Tensor) -> Tensor:
        return self.rule.view(images)

    def score(self, view: Tensor, output: TicketOutput, kept: Kept) -> Tensor:
        return (self.rule.score(view, output, kept) - kept["level"]) / kept["spread"]


class BestScore(TaskNamer):
    """The task with the best score."""

    def __init__(self, rule: Score, kept: Sequence[Kept]) -> None:
        self.rule, self.kept = rule, kept

    def __call__(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor]:
        return name_tasks(self.rule, images, outputs, self.kept)

    def belief(self, images: Tensor, outputs: Sequence[TicketOutput]) -> tuple[Tensor, Tensor]:
        view, values = self.rule.view(images), []
        for output, kept in zip(outputs, self.kept, strict=True):
            best = output.scores.argmax(1, keepdim=True)  # only the ticket's class is named
            own = torch.full_like(output.scores, -torch.inf)
            values.append(own.scatter(1, best, self.rule.score(view, output, kept).view(-1, 1)))
        confidence = [torch.softmax(output.scores, 1) for output in outputs]
        return torch.cat(values, 1), torch.cat(confidence, 1)


def name_tasks(
    rule: Score, images: Tensor, outputs: Sequence[TicketOutput], kept: Sequence[Kept]
) -> tuple[Tensor, Tensor, Tensor]:
    """For each image the task, the class within it, and the confidence of its ticket: (n,) each."""
    view = rule.view(images)
    scores = [rule.score(view, *pair) for pair in zip(outputs, kept, strict=True)]
    which = torch.stack(scores).argmax(0, keepdim=True)  # (tasks, n) → (1, n)
    best = [torch.softmax(output.scores, 1).max(1) for output in outputs]
    labels = torch.stack([each.indices for each in best]).gather(0, which)
    confidence = torch.stack([each.values for each in best]).gather(0, which)
    return which[0], labels[0], confidence[0]


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


SCORES: dict[str, Score] = {
    "confidence": Output(confidence),
    "entropy": Output(negative_entropy),
    "energy": Standardised(Output(energy)),
    "features": Standardised(Features()),
    "pixels": Pixels(),
    "pixels+confidence": PixelsAndConfidence(),
}
