"""Naming tasks by the features of an ancestor, which are the same for all tasks.

    frozen features ─► one linear discriminant over all classes of all tasks ─► which task
                       the ticket of every task                              ─► which class in it

Class means and one covariance a task are kept, and no picture. They are sufficient statistics: a
task that is dropped leaves no trace in them. The features are computed once, however many tasks
there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rivals.naming.discriminant import ClassStatistics, covariance, head
from rivals.naming.rule import PER_CLASS, Kept, Read, ReadAll, Rule, TaskNamer
from rivals.streams.task import Task
from rivals.tickets.parallel import TicketOutput

SCALE = 0.15  # of the scores; chosen on training images of CIFAR-100


class SharedFeatures(Rule):
    """Names tasks by one discriminant.

    `within` is the covariance of classes seen before, (d, d), or one variance for all, (1,).
    """

    def __init__(self, within: Tensor) -> None:
        self.within = within

    def keep(self, task: Task, read: Read, per_class: int = PER_CLASS) -> Kept:
        """Statistics of the features that `read` gives, here those of the ancestor."""
        features, labels = read(task.train.images).features, task.train.labels
        found = ClassStatistics.of(features, labels, len(task.classes))
        enough = self.within.dim() == 2 and found.freedom >= features.shape[1]
        return (found if enough else found.without_scatter()).tensors()

    def join(self, one: Kept, other: Kept, share: float) -> Kept:
        """They know themselves how many pictures they are of."""
        both = [ClassStatistics.from_tensors(each) for each in (one, other)]
        return both[0].join(both[1]).tensors()

    def namer(self, kept: Sequence[Kept], read: ReadAll) -> TaskNamer:
        return Discriminant([ClassStatistics.from_tensors(each) for each in kept], self.within)


class Discriminant(TaskNamer):
    """One linear discriminant over the classes of all tasks, joined with their tickets."""

    def __init__(self, statistics: Sequence[ClassStatistics], within: Tensor) -> None:
        means = torch.cat([each.means for each in statistics])
        self.weight, self.bias = head(means, covariance(statistics, within))
        sizes = [len(each.means) for each in statistics]
        self.sizes = sizes
        self.task = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        self.label = torch.cat([torch.arange(size) for size in sizes])

    def belief(self, images: Tensor, outputs: Sequence[TicketOutput]) -> tuple[Tensor, Tensor]:
        """The last output is the ancestor's, which has features and no classes."""
        *tickets, shared = outputs
        weight, bias = (each.to(shared.features.device) for each in (self.weight, self.bias))
        scores = SCALE * (shared.features @ weight.T + bias)
        own = torch.cat([torch.log_softmax(each.scores, 1) for each in tickets], 1)
        of_task = [each.logsumexp(1, True) for each in torch.split(scores, self.sizes, 1)]
        named = torch.cat(
            [each.expand(-1, n) for each, n in zip(of_task, self.sizes, strict=True)], 1
        )
        joined = named + own
        return joined, torch.softmax(joined, 1)

    def __call__(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores, confidences = self.belief(images, outputs)
        best = scores.argmax(1)
        confidence = confidences.gather(1, best.unsqueeze(1))[:, 0]
        return self.task.to(best.device)[best], self.label.to(best.device)[best], confidence
