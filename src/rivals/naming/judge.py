"""A judge over all tickets: learns from a few kept images whom to believe, class by class.

    log p(class) = a · log p of its own ticket + b · evidence of another rule + c · a linear output
                   of what every ticket sees                                    − normalisation

The other rule is the density of the pixels (`judge`), or the discriminant on the filter bank
(`filters+judge`).

The linear output is ridge regression on the exemplars, from the features of all tickets and the
image made small to all classes of all tasks. The weights a, b, c and the penalty are those under
which exemplars that the regression left out are most probable, so the answer is calibrated. A
ticket is surer of images it was trained on than of others. Hence exemplars are taken from
validation data while there are some, and only these weigh, unless there are none.

The weights are positive, log-normal around 1 for ticket and rule and a quiet third, so that with
few exemplars the judge is the rule and the ticket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.errors import RivalsError
from rivals.naming.joint_head import LEAST
from rivals.naming.minimise import minimise
from rivals.naming.ridge import Ridge
from rivals.naming.rule import PER_CLASS, Kept, Read, ReadAll, Rule, TaskNamer
from rivals.naming.scores import TEMPER, Pixels, small
from rivals.naming.shared_features import SharedFeatures, SharedNamer
from rivals.streams.task import Task
from rivals.tickets.parallel import TicketOutput

PENALTIES = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1)  # times the number of exemplars
START = (1.0, 1.0, 0.1)  # weights before anything is seen, in log-odds
FARTHEST = 5.0  # deviations that a value counts at most
LARGEST = 8000  # exemplars or values of a row, whichever are fewer: 0.5 GB
FLAT, STEPS = 1e-7, 100  # of the search for the weights: the slope that ends it, and the most steps
PIXELS = Pixels()


class Judge(Rule):
    """Keeps exemplars beside what another rule keeps, and fits a judge when tickets are stacked."""

    def __init__(self, beside: Pixels | SharedFeatures = PIXELS) -> None:
        self.beside, self.features = beside, beside.features

    def keep(self, task: Task, read: Read, per_class: int = PER_CLASS) -> Kept:
        return {**self.beside.keep(task, read), **exemplars(task, per_class)}

    def namer(self, kept: Sequence[Kept], read: ReadAll) -> TaskNamer:
        images = torch.cat([each["images"] for each in kept])
        outputs = read(images)
        firsts = torch.tensor([0, *sizes_of(outputs[: len(kept)])[:-1]]).cumsum(0)
        labels = [each["labels"].long() + first for each, first in zip(kept, firsts, strict=True)]
        held = torch.cat([each["held"] for each in kept])
        namer = self.beside.namer(kept, read) if isinstance(self.beside, SharedFeatures) else None
        return fit(images, torch.cat(labels), held, outputs, kept, namer)


def exemplars(task: Task, per_class: int) -> Kept:
    """So many images of each class, all if it has fewer; validation images first."""
    images, labels, held = [], [], []
    for label in range(len(task.classes)):
        room = per_class
        for examples, unlearned in ((task.validation, True), (task.train, False)):
            members = torch.nonzero(examples.labels == label).flatten()
            count = min(room, len(members))
            few = members[torch.arange(count) * len(members) // max(1, count)]  # evenly spaced
            images.append(examples.images[few])
            labels.append(examples.labels[few])
            held.append(torch.full((count,), unlearned))
            room -= count
    return {
        "images": torch.cat(images),  # (n, channels, height, width) uint8
        "labels": torch.cat(labels).to(torch.int16),
        "held": torch.cat(held),  # out of training
    }


def fit(
    images: Tensor,
    labels: Tensor,
    held: Tensor,
    outputs: Sequence[TicketOutput],
    kept: Sequence[Kept],
    beside: SharedNamer | None = None,
) -> Judgement:
    """The judge of exemplars whose labels count over all tasks; `held` are those that weigh.

    `beside` gives the evidence of the other rule; without it, the pixels do.
    """
    tickets = outputs[: len(kept)]
    values = seen(images, tickets)
    smaller = min(len(values), values.shape[1] + 1)
    if smaller > LARGEST:
        raise RivalsError(
            f"A judge of {len(values):,} exemplars and {values.shape[1]:,} features needs a square "
            f"of {smaller:,}, and {LARGEST:,} is the most; use naming.rule=filters for "
            "so many tasks."
        )
    look = Look(values.mean(0), values.std(0, correction=0).clamp(min=1e-6))
    sizes = sizes_of(tickets)
    targets = F.one_hot(labels, sum(sizes)).double() - 1 / sum(sizes)
    ridge = Ridge(look(values).double(), targets)
    count = held if held.any() else torch.ones_like(held)  # whose left-out answers weigh
    known = torch.stack(own_scores(images, outputs, kept, beside)).double()  # (2, n, classes)
    best: tuple[float, Tensor, Tensor] | None = None
    for penalty in PENALTIES:
        answer = ridge.left_out(penalty * len(values))
        spread = answer.std(correction=0).clamp(min=1e-9)
        evidence = torch.cat([known, (answer / spread)[None]])
        loss, weights = weigh(evidence[:, count], labels[count])
        if best is None or loss < best[0]:
            best = loss, weights, ridge.weights(penalty * len(values)) / spread
    assert best is not None
    return Judgement(look, best[2].float(), best[1].float(), sizes, kept, beside)


def weigh(evidence: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    """The loss, and the k weights that minimise it: a logistic regression.

    Args:
        evidence: k scores for every class of every image, (k, n, classes).
        labels: The true classes (n,).
    """
    start = torch.tensor(START, dtype=evidence.dtype)
    truth = F.one_hot(labels, evidence.shape[2])

    def evaluate(apart: Tensor) -> tuple[float, Tensor]:
        weighed = (start * apart.exp())[:, None, None] * evidence
        logs = torch.log_softmax(weighed.sum(0), 1)
        value = -(logs * truth).sum() + apart.square().sum() / 2
        slope = ((logs.exp() - truth) * weighed).sum((1, 2)) + apart
        return float(value) / len(labels), slope / len(labels)

    apart = minimise(evaluate, torch.zeros_like(start), FLAT, STEPS)
    return evaluate(apart)[0], start * apart.exp()


def seen(images: Tensor, outputs: Sequence[TicketOutput]) -> Tensor:
    """What the regression reads: features of all tickets, and the image made small: (n, d)."""
    return torch.cat([*(output.features for output in outputs), small(images)], 1)


def own_scores(
    images: Tensor, outputs: Sequence[TicketOutput], kept: Sequence[Kept],
    beside: SharedNamer | None,
) -> list[Tensor]:  # fmt: skip
    """What ticket and rule say of the classes of a task: (n, classes) each."""
    tickets = outputs[: len(kept)]
    logs = torch.cat([torch.log_softmax(output.scores, 1) for output in tickets], 1)
    if beside is not None:
        return [logs, beside.named(outputs[-1].features).clamp(min=LEAST).log()]
    view = PIXELS.view(images)
    density = [
        TEMPER * PIXELS.score(view, output, own)[:, None].expand_as(output.scores)
        for output, own in zip(tickets, kept, strict=True)
    ]
    return [logs, torch.cat(density, 1)]


def sizes_of(outputs: Sequence[TicketOutput]) -> list[int]:
    """How many classes each task has."""
    return [output.scores.shape[1] for output in outputs]


@dataclass(frozen=True)
class Look:
    """Values brought to one scale; a constant is added."""

    mean: Tensor  # (d,)
    spread: Tensor  # (d,)

    def __call__(self, values: Tensor) -> Tensor:
        scaled = ((values - self.mean) / self.spread).clamp(-FARTHEST, FARTHEST)
        return F.pad(scaled / len(self.mean) ** 0.5, (0, 1), value=1.0)  # (n, d + 1)


class Judgement(TaskNamer):
    """The most probable class of all tasks."""

    def __init__(
        self, look: Look, ridge: Tensor, weights: Tensor, sizes: Sequence[int],
        kept: Sequence[Kept], beside: SharedNamer | None = None,
    ) -> None:  # fmt: skip
        self.look, self.ridge, self.weights = look, ridge, weights
        self.kept, self.beside = kept, beside
        self.task = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))  # (classes,)
        self.label = torch.cat([torch.arange(size) for size in sizes])

    def __call__(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.among_all(images, outputs)[:3]

    def among_all(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        confidences = self.belief(images, outputs)[1]
        confidence, best = confidences.max(1)
        return self.task[best], self.label[best], confidence, confidences

    def familiarity(self, outputs: Sequence[TicketOutput], which: Tensor) -> Tensor:
        assert self.beside is not None
        return self.beside.familiarity(outputs, which)

    def belief(self, images: Tensor, outputs: Sequence[TicketOutput]) -> tuple[Tensor, Tensor]:
        answer = self.look(seen(images, outputs[: len(self.kept)])) @ self.ridge
        evidence = [*own_scores(images, outputs, self.kept, self.beside), answer]
        scores = sum(weight * each for weight, each in zip(self.weights, evidence, strict=True))
        return scores, torch.softmax(scores, 1)
