"""iCaRL: incremental classifier and representation learning (Rebuffi et al. 2017).

Each task is learned from its data and all exemplars together. Every class has a sigmoid output; the
targets of old classes are the outputs of the network as it was before the task (its teacher):

    loss = Σ over classes of BCE(score, teacher's probability if old, else one-hot)

Afterwards exemplars of the new classes are herded, and a class is the mean of its exemplars:

    class of x = argmin ‖φ(x)/‖φ(x)‖ − μ‖ = argmax ⟨φ(x), μ⟩,   μ of norm 1

The right-hand side is a linear layer, so a ticket is a plain network whose head holds the means.

Deviations
- The loss is summed over the classes seen. The original averages over all 100 outputs, known in
  advance; its lr of 2.0 is 0.02 here.
- A class keeps ⌊budget / classes⌋ exemplars, never more than the budget; the original rounds up.
- Herding is Algorithm 4 of the paper; the code weighs by inner products.
- Mirrored exemplars enter the means where the augmentation mirrors, else not.
- The learning rate falls to 0 over each task, as in all methods here; the original divides by 5.
- `objective: ce` is a common variant: cross-entropy over the classes seen, and distillation of the
  teacher's softened scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, fx, nn

from rivals.baselines.memory.features import BATCH, compute
from rivals.baselines.rehearsal import Rehearsal, RehearsalSettings
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.activations import Activations
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task

NEVER = -1e4  # the score of a class without images


class ICaRLSettings(RehearsalSettings):
    """How much is kept, and what is descended."""

    norms: Literal["task", "shared"] = "shared"
    lr: float = 0.02
    weight_decay: float = 1e-5
    budget: int = 2000
    budget_in: Literal["class", "images", "bytes"] = "images"
    objective: Literal["bce", "ce"] = Field(
        "bce", description="bce: sigmoid outputs, as the original | ce: softmax and distillation"
    )
    soften: float = Field(2.0, description="temperature of the distillation of `ce`")

    def check(self) -> None:
        super().check()
        if not self.soften > 0:
            raise RivalsError(f"soften is {self.soften}, but must be a positive number.")
        self.need_shared_norms("the classes of all tasks compete")


@methods.register("icarl")
class ICaRL(Rehearsal):
    """Learns features with a teacher, classifies by the nearest mean of exemplars."""

    settings: ICaRLSettings
    settings_class = ICaRLSettings
    policy = "herding"

    def __init__(self, plan: NetworkPlan, settings: ICaRLSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.teacher: DenseNetwork | None = None  # while a task is learned
        self.means: dict[str, Tensor] = {}  # by task: (classes, d), rows of norm 1, or 0 if unknown

    def begin_task(self, task: Task) -> None:
        if self.known:
            self.teacher = self.copied(self.network(task.name).tensors())
        super().begin_task(task)

    def copied(self, tensors: dict[str, Tensor]) -> DenseNetwork:
        """The network before the present task, frozen."""
        teacher = self.build("teacher")
        for task, known in self.known.items():
            if task != self.current:
                teacher.add(task, len(known.classes))
        teacher.load(tensors)
        return teacher

    def training_set(self, task: Task) -> Sequence[Task]:
        return [self.union(task)]

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        images, labels = self.prepared(batch), batch.labels
        network = self.network(batch.task).learning(True)
        scores = network(images, batch.task, heads=list(self.known))  # (n, classes seen)
        old = torch.empty(len(labels), 0)
        if self.teacher is not None:
            tasks = list(self.teacher.heads)
            with torch.no_grad():
                old = self.teacher.learning(False)(images, tasks[0], heads=tasks)
        if self.settings.objective == "ce":
            return F.cross_entropy(scores, labels) + self.distillation(scores, old), scores
        targets = F.one_hot(labels, scores.shape[1]).float()
        targets[:, : old.shape[1]] = torch.sigmoid(old)
        loss = F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
        return loss / len(labels), scores

    def distillation(self, scores: Tensor, old: Tensor) -> Tensor:
        """Cross-entropy of softened scores of old classes with the teacher's."""
        heat = self.settings.soften
        mine = F.log_softmax(scores[:, : old.shape[1]] / heat, 1)
        return -(F.softmax(old / heat, 1) * mine).sum(1).mean()

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        self.teacher = None
        with self.charged(), torch.no_grad():
            self.memory.herd(task, partial(self.features, task=task.name))
            self.means = {name: self.means_of(name) for name in self.memory.tasks()}

    def means_of(self, task: str) -> Tensor:
        """Where the classes of `task` lie under the present weights."""
        kept, features = self.memory.all(task), partial(self.features, task=task)
        images, labels = kept.raw, kept.labels
        if self.settings.augmentation.endswith("flip"):
            images, labels = torch.cat([images, images.flip(-1)]), labels.repeat(2)
        points = compute(features, torch.split(images, BATCH), len(images))
        return class_means(points, labels, len(self.known[task].classes))

    def class_scores(self, flow: Activations, task: str) -> Tensor:
        means = self.means[task]
        return F.linear(F.normalize(flow.values, dim=1), means, unknown(means))

    def logits(self, images: Tensor, task: str) -> Tensor:
        """⟨φ(x), μ⟩: the order of the distances, in the form of a plain head."""
        means = self.means[task]
        flow = self.network(task).learning(False).flow(images, task)
        return F.linear(flow.values, means, unknown(means))

    def ticket(self, task: str) -> fx.GraphModule:
        ticket, means = super().ticket(task), self.means[task]
        *_, head = (layer for layer in ticket.modules() if isinstance(layer, nn.Linear))
        with torch.no_grad():
            head.weight.copy_(means)
            head.bias.copy_(unknown(means))
        return ticket

    def footprint(self) -> dict[str, int]:
        teacher = self.teacher.tensors().values() if self.teacher else ()
        return {
            **super().footprint(),
            "means": sum(tensor.nbytes for tensor in self.means.values()),
            "teacher": sum(tensor.nbytes for tensor in teacher),
        }

    def state(self) -> State:
        parts = super().state()
        parts["means"] = StatePart(dict(self.means))
        if self.teacher is not None:
            parts["teacher"] = StatePart(self.teacher.tensors())
        return parts

    def load(self, state: State) -> None:
        super().load(state)
        self.means = dict(state["means"].tensors)
        self.teacher = self.copied(state["teacher"].tensors) if "teacher" in state else None


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """(classes, d): the mean direction of each class in `features` (n, d); 0 if it has none."""
    directions = F.normalize(features, dim=1)
    sums = torch.zeros(classes, features.shape[1]).index_add_(0, labels, directions)
    return F.normalize(sums, dim=1)


def unknown(means: Tensor) -> Tensor:
    """What is added to scores, so that a class without images is never the nearest."""
    return NEVER * (means == 0).all(1).float()
