"""iCaRL: incremental classifier and representation learning (Rebuffi et al. 2017).

Each task is learned from its data and all exemplars together. Every class has a sigmoid output; the
targets of old classes are the outputs of the network as it was before the task (its teacher):

    loss = Σ over classes of BCE(score, teacher's probability if old, else one-hot)

Afterwards exemplars of the new classes are herded, and a class is the mean of its exemplars:

    class of x = argmin ‖φ(x)/‖φ(x)‖ − μ‖ = argmax ⟨φ(x), μ⟩,   μ of norm 1

The right-hand side is a linear layer, so a ticket is a plain network whose head holds the means.

Deviations from the official code
- The loss is summed over the classes seen. The original averages over all 100 outputs, known in
  advance; its lr of 2.0 is 0.02 here.
- A class keeps ⌊size / classes⌋ exemplars, so the memory never exceeds its size; the original
  rounds up.
- Herding is Algorithm 4 of the paper; the official code weighs by inner products.
- Mirrored exemplars are part of the class means only if the augmentation mirrors images.
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

from rivals.baselines.dense_method import DenseMethod, DenseSettings, default
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import MemorySettings
from rivals.baselines.memory.herding import BATCH, compute_features
from rivals.baselines.seen_classes import NEVER, SeenClasses
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.activations import Activations
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task


class ICaRLSettings(DenseSettings):
    """How much is stored, and which loss is minimised."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    shared_norms: bool = default(DenseSettings, "shared_norms", True)
    lr: float = default(DenseSettings, "lr", 0.02)
    weight_decay: float = default(DenseSettings, "weight_decay", 1e-5)
    memory: MemorySettings = MemorySettings(size=2000, counted_in="images")
    objective: Literal["bce", "ce"] = Field(
        "bce", description="Sigmoid outputs as in the original, or softmax with distillation."
    )
    temperature: float = Field(
        2.0, gt=0, allow_inf_nan=False, description="Distillation temperature of objective=ce."
    )

    def check(self) -> None:
        super().check()
        self.need_shared_norms("the classes of all tasks compete")


@methods.register("icarl")
class ICaRL(DenseMethod):
    """Learns features with a teacher, classifies by the nearest class mean of exemplars."""

    settings: ICaRLSettings
    settings_class = ICaRLSettings
    trains_all_heads = True
    memory: ExemplarMemory
    seen: SeenClasses

    def __init__(self, plan: NetworkPlan, settings: ICaRLSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.memory = ExemplarMemory(
            settings.memory.budget, "herding", seed.child("memory"), device=self.device
        )
        self.seen = SeenClasses(self.known, self.network, class_scores=self.mean_scores)
        self.teacher: DenseNetwork | None = None  # while a task is learned
        self.means: dict[str, Tensor] = {}  # by task: (classes, d), rows of norm 1, or 0 if unknown

    def begin_task(self, task: Task) -> None:
        if self.known:
            self.teacher = self.copied(self.network(task.name).tensors())
        super().begin_task(task)

    def copied(self, tensors: dict[str, Tensor]) -> DenseNetwork:
        """The network before the present task, frozen."""
        teacher = self.build()
        for task, known in self.known.items():
            if task != self.current:
                teacher.add(task, len(known.classes))
        teacher.load(tensors)
        return teacher

    def training_set(self, task: Task) -> Sequence[Task]:
        return [self.seen.union(task, self.memory)]

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        images, labels = self.seen.preprocess(batch), batch.labels
        scores = self.seen.train_scores(images)  # (n, classes seen)
        old = scores.new_empty(len(labels), 0)
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
        temperature = self.settings.temperature
        mine = F.log_softmax(scores[:, : old.shape[1]] / temperature, 1)
        return -(F.softmax(old / temperature, 1) * mine).sum(1).mean()

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        self.teacher = None
        with self.charged(), torch.no_grad():
            self.memory.herd(task, partial(self.seen.features, task=task.name))
            self.means = {name: self.means_of(name) for name in self.memory.tasks()}

    def means_of(self, task: str) -> Tensor:
        """The class means of `task` under the present weights."""
        kept, features = self.memory.all(task), partial(self.seen.features, task=task)
        images, labels = kept.raw, kept.labels
        if self.settings.augmentation.endswith("flip"):
            images, labels = torch.cat([images, images.flip(-1)]), labels.repeat(2)
        points = compute_features(features, torch.split(images, BATCH), len(images))
        means = class_means(points, labels.cpu(), len(self.known[task].classes))
        return means.to(self.device)

    def mean_scores(self, flow: Activations, task: str) -> Tensor:
        """Cosines to the class means; they are comparable between tasks."""
        means = self.means[task]
        return F.linear(F.normalize(flow.values, dim=1), means, empty_bias(means))

    def logits(self, images: Tensor, task: str) -> Tensor:
        """⟨φ(x), μ⟩: the order of the distances, in the form of a plain head."""
        means = self.means[task]
        flow = self.network(task).learning(False).flow(images, task)
        return F.linear(flow.values, means, empty_bias(means))

    def ticket(self, task: str) -> fx.GraphModule:
        ticket, means = super().ticket(task), self.means[task]
        *_, head = (layer for layer in ticket.modules() if isinstance(layer, nn.Linear))
        with torch.no_grad():
            head.weight.copy_(means)
            head.bias.copy_(empty_bias(means))
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
        self.means = {task: means.to(self.device) for task, means in state["means"].tensors.items()}
        self.teacher = self.copied(state["teacher"].tensors) if "teacher" in state else None


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The mean direction of each class in `features` (n, d), 0 without images: (classes, d)."""
    directions = F.normalize(features, dim=1)
    sums = torch.zeros(classes, features.shape[1]).index_add_(0, labels, directions)
    return F.normalize(sums, dim=1)


def empty_bias(means: Tensor) -> Tensor:
    """The bias of a head of means: a class without images is never the nearest."""
    return NEVER * (means == 0).all(1).float()
