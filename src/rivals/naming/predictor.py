"""The one predictor: tickets of several tasks answer about images, with or without a task.

Evaluation, `Model.predict`, the command line and the page all ask here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rivals.naming.familiarity import FeatureStatistics
from rivals.naming.rule import Rule, TaskNamer
from rivals.naming.task_record import Prediction, TaskRecord
from rivals.tickets.parallel import AnyTicket, ParallelTickets, TicketOutput
from rivals.tickets.ticket import check_finite

PLAIN = 2.0  # standard deviation of the pixels of a picture that shows nothing, of 255


def shows_nothing(images: Tensor) -> Tensor:
    """Which raw images (n, channels, height, width) are of one colour: (n,)."""
    deviation = images.flatten(2).float().std(2).amax(1)
    return deviation < PLAIN


def check_tickets(tasks: Sequence[str], outputs: Sequence[TicketOutput]) -> None:
    """Refuse scores that are no answers; all at once, for there may be many tasks."""
    if bool(torch.isfinite(torch.cat([output.scores for output in outputs], 1)).all()):
        return
    for name, output in zip(tasks, outputs, strict=False):
        check_finite(output.scores, f"The ticket of '{name}'")


class Predictor:
    """Tickets, the records of their tasks, and the rule that names a task.

    Where the rule has features of its own, it gets them after what the tickets give.
    """

    def __init__(
        self, tasks: Sequence[str], tickets: Sequence[AnyTicket],
        records: Sequence[TaskRecord], rule: Rule,
        familiarity: Sequence[FeatureStatistics] = (),
    ) -> None:  # fmt: skip
        self.tasks, self.tickets, self.records = tuple(tasks), list(tickets), list(records)
        self.rule, self.features = rule, rule.features
        self.familiarity = list(familiarity)
        self._groups: dict[tuple[int | None, bool], ParallelTickets] = {}
        self._namer: TaskNamer | None = None

    def group(self, member: int | None = None, shared: bool = True) -> ParallelTickets:
        """All tickets ready to run together, or one of them; and the shared features, if asked."""
        if (member, shared) not in self._groups:
            chosen = range(len(self.tasks)) if member is None else [member]
            tickets = [self.tickets[m] for m in chosen]
            preparations = [self.records[m].preprocessing for m in chosen]
            if shared and self.features is not None:
                tickets, preparations = [*tickets, self.features], [*preparations, preparations[0]]
            self._groups[member, shared] = ParallelTickets(tickets, preparations)
        return self._groups[member, shared]

    @property
    @torch.no_grad()
    def namer(self) -> TaskNamer:
        """What names tasks; made when first asked for."""
        if self._namer is None:
            kept = [record.kept or {} for record in self.records]
            self._namer = self.rule.namer(kept, self.group())
        return self._namer

    @torch.no_grad()
    def predict(
        self, images: Tensor, task: str | None = None, reject: float | None = None
    ) -> Prediction:
        """Answers for raw images (n, channels, height, width); without a task, one is named."""
        member = None if task is None else self.tasks.index(task)
        if member is None and len(self.tasks) == 1:
            member = 0
        outputs = self.group(member, member is None or reject is not None)(images)
        asked, joint = [self.tasks[member]] if member is not None else self.tasks, None
        check_tickets(asked, outputs)
        if member is None:
            which, labels, confidence, joint = self.namer.among_all(images, outputs)
            check_finite(confidence, "The rule that names the task")
        else:
            best = torch.softmax(outputs[0].scores, 1).max(1)
            labels, confidence = best.indices, best.values
            which = torch.full_like(labels, member)
        rejected = None
        if reject is not None:
            rejected = self._rejected(outputs, which, member, reject)
            rejected |= shows_nothing(images).to(rejected.device)
        outputs = outputs[: len(asked)]
        return Prediction(self.tasks, which, labels, confidence, rejected, outputs, member, joint)

    @torch.no_grad()
    def log_probabilities(self, images: Tensor) -> Tensor:
        """Of the classes of all tasks for raw images, task after task: (n, classes).

        The largest is the class that `predict` names. A rule that scores tasks says nothing of the
        other classes in them; there the ticket of the task does.
        """
        outputs = self.group()(images)
        check_tickets(self.tasks, outputs)
        tickets = outputs[: len(self.tasks)]
        if len(tickets) == 1:
            return torch.log_softmax(tickets[0].scores, 1)
        scores, _ = self.namer.belief(images, outputs)
        parts = torch.split(scores, [each.scores.shape[1] for each in tickets], 1)
        apart = [each.scores - each.scores.amax(1, keepdim=True) for each in tickets]
        filled = [p.amax(1, keepdim=True) + a for p, a in zip(parts, apart, strict=True)]
        return torch.log_softmax(torch.where(scores.isneginf(), torch.cat(filled, 1), scores), 1)

    def _rejected(
        self, outputs: Sequence[TicketOutput], which: Tensor, member: int | None, share: float
    ) -> Tensor:
        """Which images look less familiar to their task than a share of its own ones: (n,)."""
        if self.features is not None:
            return self.namer.familiarity(outputs, which) < share
        members = range(len(self.tasks)) if member is None else [member]
        known = [self.familiarity[m] for m in members]
        unfamiliar = torch.stack(
            [each(out) < each.least(share) for each, out in zip(known, outputs, strict=True)]
        )  # (tasks, n)
        place = which if member is None else torch.zeros_like(which)
        return unfamiliar.gather(0, place.unsqueeze(0))[0]
