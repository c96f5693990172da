"""More pictures of a task that is known: its ticket is trained further, from where it stands.

Only the edges that this task alone uses may change, its norms and its head; so the tickets of the
others keep every bit. The pictures it learned from before are gone. What it knew of them is kept by
answers: the ticket as it was also answers on the new pictures, and is not to be left far behind.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.learn.method import Position, StepResult
from rivals.model.trainer import Trainer
from rivals.naming import gaussian
from rivals.naming.familiarity import few
from rivals.naming.task_record import TaskRecord
from rivals.streams.task import Batch

FAITH = 1.0  # how much the former answers count beside the new labels
SLOWER = 0.2  # the learning rate, of that for a new task


class Refiner(Trainer):
    """Trains a known task further."""

    def refine(self) -> tuple[float, float]:
        """Accuracy on the held-out pictures before and after."""
        method, task = self.method, self.task
        self.former = method.ticket(task.name)
        batches = method.settings.batching.count(task)
        method.position = Position(steps=batches * method.settings.epochs)
        method.network.reopen(task.name)
        method.current, method.competing, method.stacked = task.name, False, None
        method.prepare_settled()
        before = self.accuracy()
        self.best = before
        self.begins()
        self.train()
        after = self.accuracy()
        for part in method.slices():
            part.write_back()
        method.network.rewrite(task.name)
        method.selection, method.optimisers, method.current = None, [], ""
        return before, after

    def step(self, batch: Batch) -> StepResult:
        """As a method's step, with the former answers beside the labels."""
        method = self.method
        loss, scores = method.loss(batch)
        with torch.no_grad():
            former = torch.softmax(self.former(batch.images), 1)
        total = loss + FAITH * _apart(scores, former)
        total.backward()  # type: ignore[no-untyped-call]
        method.adjust_gradients(batch)
        method.update()
        correct = int((scores.detach().argmax(1) == batch.labels).sum())
        return StepResult(loss.item(), correct, len(batch.labels))

    def remember(self, old: TaskRecord, share: float) -> None:
        """Join what was kept of the former pictures with the same of the new ones."""
        method = self.method
        method.known[self.task.name] = old
        method.keep(few(self.task))
        new = method.known[self.task.name]
        assert old.kept is not None
        assert new.kept is not None
        joined = gaussian.join(old.kept, new.kept, share)
        method.known[self.task.name] = TaskRecord(old.classes, old.preprocessing, joined)


def _apart(scores: Tensor, former: Tensor) -> Tensor:
    """Kullback-Leibler divergence from the former answers (n, classes)."""
    return F.kl_div(torch.log_softmax(scores, 1), former, reduction="batchmean")
