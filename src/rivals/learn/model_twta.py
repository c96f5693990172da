"""TWTA as a model folder has it: also learns without a step, and trains known tasks further.

A task may be a linear head on features that never change: those of the ancestor or of a stem, or
edges and small pixels of the picture. Such a head follows from statistics (naming/discriminant.py),
so learning it is counting and solving. Benchmarks need none of this.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx

from rivals.learn.method import Position
from rivals.learn.twta import TWTA, VIEWED, TWTASettings
from rivals.naming.discriminant import ClassStatistics, covariance, head
from rivals.naming.rule import Rule
from rivals.naming.rules import RULES
from rivals.naming.task_record import TaskRecord
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.stem import STEM
from rivals.seeds import Seed
from rivals.streams.task import Batch, Examples, Preprocessing, Task
from rivals.tickets.parallel import AnyTicket, SharedBodyTicket

AS_THEY_ARE = Preprocessing(1.0, (0.0,), (1.0,))  # of features
DISTILLATION = 1.0  # weight of the former answers when a task is refined


class ModelTWTA(TWTA):
    """TWTA, closed forms, and refining."""

    def __init__(self, plan: NetworkPlan, settings: TWTASettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.former: fx.GraphModule | None = None  # the ticket before it is refined
        self._view: tuple[Task, Task] | None = None  # the last task, and what training reads of it

    def naming_rule(self) -> Rule:
        """In a model from nothing of rivals 0.1 tasks keep the density of their pixels; then new
        ones do, too."""
        if any(by_pixels(record) for record in self.known.values()):
            return RULES["pixels+confidence"]
        return super().naming_rule()

    # On features that do not change ------------------------------------------------------------

    def learn_direct(self, task: Task, weight: Tensor, bias: Tensor) -> None:
        """Learn `task` without a step and without units: this is its head, which reads no body.

        Args:
            task: The task.
            weight: (classes, width); the width, one of `network.direct_widths`, says what it reads.
            bias: (classes,).
        """
        self.check_new(task)
        self.position, self.flops, self.spent = Position(), {}, 0.0
        self.network.add_direct_head(task.name, weight, bias)
        self.network.freeze(task.name)
        self.known[task.name] = TaskRecord(task.classes, task.preprocessing)
        self.facts[task.name] = {}
        self.keep(task)

    def stable_lr(self, task: Task) -> float:
        """The learning rate at which a linear layer on what direct heads read does not diverge.

        No norm brings these features to one scale, so the rate follows from their squares.
        """
        images = task.train.images
        some = task.preprocessing(images[:: -(-len(images) // VIEWED)].to(self.device))
        kind = self.network.direct_kind(task.name)
        rows = self.network.learning(False).direct_flow(some, kind).values
        return 1 / (1 + float(rows.square().sum(1).mean()))

    @torch.no_grad()
    def training_view(self, task: Task) -> Task:
        """With a stem, the task in its features, which do not change: (n, d, 1, 1) for a picture.

        The last one is kept, for what is measured after training.
        """
        if self.network.stem is None:
            return task
        if self._view is None or self._view[0] is not task:
            parts = [self._view_of(task, each) for each in (task.train, task.validation)]
            self._view = task, Task(task.name, task.classes, parts[0], parts[1], AS_THEY_ARE)
        return self._view[1]

    def _view_of(self, task: Task, examples: Examples) -> Examples:
        rows = self.direct_features(task, examples, STEM)
        return Examples(rows[:, :, None, None], examples.labels)

    @torch.no_grad()
    def direct_features(self, task: Task, examples: Examples, kind: str) -> Tensor:
        """What direct heads of a kind read of these pictures: (n, d)."""
        network, images = self.network.learning(False), torch.split(examples.images, VIEWED)
        prepared = (task.preprocessing(some.to(self.device)) for some in images)
        return torch.cat([network.direct_flow(some, kind).values.cpu() for some in prepared])

    def learn_in_closed_form(self, task: str, record: TaskRecord) -> None:
        """Learn `task` without a step: a head on the features of the ancestor, or of the stem.

        The record keeps statistics of the task's features, with `prior` and `scale`. The head is
        computed from them, so they are all there is to store (naming/discriminant.py).
        """
        assert record.kept is not None
        self.known[task] = record
        self.network.settle_on_features(task, *self.closed_form(record.kept))
        self.network.freeze(task)
        self.facts[task], self._predictor = {}, None

    def closed_form(self, kept: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The head that follows from the statistics of a task."""
        statistics = ClassStatistics.from_tensors(kept)
        prior, scale = float(kept["prior"]), float(kept["scale"])
        spread = covariance([statistics], self.network.within, prior)
        weight, bias = head(statistics.means, spread)
        return scale * weight, scale * bias

    def in_closed_form(self, task: str) -> bool:
        """Whether statistics are all that is stored of `task`."""
        return "prior" in (self.known[task].kept or {})

    def answering(self, task: str) -> AnyTicket:
        if not self.in_closed_form(task):
            return self.ticket(task)
        own = self.network.heads[task]
        weight, bias = own.weight.detach().flatten(1), own.bias.detach()
        return SharedBodyTicket(self.shared_body, weight, bias)

    # Refining a task that is known -------------------------------------------------------------

    def begin_refining(self, task: Task) -> None:
        """Train a known task further: the edges that it alone uses, its norms and its head.

        Its former pictures are gone. What it knew of them is kept by distillation: the ticket as it
        was also answers on the new pictures, and the new answers stay near.
        """
        if self.network.is_direct(task.name):
            self.settings = self.settings.replace(lr=min(self.settings.lr, self.stable_lr(task)))
        self.former = self.ticket(task.name)
        steps = self.settings.batching.count(task) * self.settings.epochs
        self.position = Position(steps=steps)
        self.network.reopen(task.name)
        self.current, self.competing, self._predictor = task.name, False, None
        self.prepare_settled()

    def end_refining(self, task: Task) -> None:
        for part in self.slices():
            part.write_back()
        self.network.rewrite(task.name)
        self.selection, self.optimisers, self.current, self.former = None, [], "", None

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of a task that is trained further, also how far its answers move from the former ones."""
        loss, scores = super().loss(batch)
        if self.former is not None:
            loss = loss + DISTILLATION * self.distance_to_former(scores, batch)
        return loss, scores

    def distance_to_former(self, scores: Tensor, batch: Batch) -> Tensor:
        """Kullback-Leibler divergence from the answers of the former ticket."""
        assert self.former is not None
        with torch.no_grad():
            former = torch.softmax(self.former(batch.images), 1)
        return F.kl_div(torch.log_softmax(scores, 1), former, reduction="batchmean")


def by_pixels(record: TaskRecord) -> bool:
    """Whether a task is named by the density of its pixels."""
    return "rest" in (record.kept or {})
