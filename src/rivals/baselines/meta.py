"""What La-MAML and FS-DGPM share: slices of a batch, a memory, losses at weights that are tried.

Both try a few small steps on slices of a batch, measure the loss of where these lead on the whole
batch and on exemplars, and learn from its gradient.

The batch is normalised by its own statistics, replayed exemplars by the running ones of their task,
as at inference: there may be one of a task. Statistics move once in a glance, at the last weights
that were tried. A batch joins the memory after its step, in the first epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from rivals.baselines.memory.exemplar import Replay
from rivals.baselines.memory.exemplar_budget import Budget
from rivals.baselines.memory.exemplars import ExemplarMemory
from rivals.baselines.remembering import Remembering
from rivals.baselines.sharing import Sharing, SharingSettings, on_copies
from rivals.learn.method import StepResult
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task


class MetaSettings(SharingSettings):
    """How often and how finely a batch is looked at, and what is replayed beside it."""

    batch_size: int = 10
    memory: int = Field(200, description="images kept in all: a uniform sample of those seen")
    replay: int = Field(10, description="of them beside each batch")
    replay_from: Literal["all", "past"] = Field(
        "all", description="all: of every task | past: not of the present one"
    )
    slices: int = Field(5, description="of a batch, each for one step that is tried")
    glances: int = Field(1, description="updates in a row on the same batch")
    clip: float = Field(
        1.0, description="norm of what is learned from; largest entry of a gradient that is tried"
    )
    second_order: bool = Field(
        True, description="learn through the gradients of the steps that are tried"
    )

    def check(self) -> None:
        super().check()
        self.at_least(1, "memory", "replay", "slices", "glances")
        self.not_negative("clip")


class Meta(Remembering, Sharing):
    """A network, a memory, and the loss at other weights than its own."""

    settings: MetaSettings
    settings_class = MetaSettings

    def __init__(self, plan: NetworkPlan, settings: MetaSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        budget = Budget(total=settings.memory)
        self.memory = ExemplarMemory(budget, "reservoir", seed.child("memory"))
        self.replays: list[list[Batch]] = []  # of the next step, glance by glance
        self.names: dict[int, str] = {}  # of all that is trained, by the identity of a tensor
        self.paths: list[str] = []  # of the weights of the present task, as torch names them

    def begin_task(self, task: Task) -> None:
        self.memory.begin(task)
        super().begin_task(task)

    def prepare(self) -> None:
        self.share()  # first: names are of what is shared
        network = self.network(self.current)
        self.paths = paths(network, self.weights(self.current))
        self.names = {id(w): f"layer{i}" for i, w in enumerate(network.shared_parameters())}
        for task in network.heads:
            for part_name, part in network.own(task).items():
                for number, tensor in enumerate(part.parameters()):
                    self.names.setdefault(id(tensor), f"{task}/{part_name}.{number}")
        super().prepare()

    def weights(self, *tasks: str) -> list[Tensor]:
        """The shared weights and those of `tasks`, each once."""
        network = self.network(self.current)
        own = [tensor for task in tasks for tensor in network.task_parameters(task)]
        return list({id(t): t for t in [*network.shared_parameters(), *own]}.values())

    def trained(self) -> list[Tensor]:
        """Old tasks too: what is replayed is learned from."""
        return self.weights(*self.network(self.current).heads)

    # A step ------------------------------------------------------------------------------------

    def before_step(self, batch: Batch) -> None:
        s, at = self.settings, (batch.task, self.position.step)
        left_out = batch.task if s.replay_from == "past" else None
        seeds = [self.seed.child("replay", *at, glance) for glance in range(s.glances)]
        drawn = [self.memory.sample(s.replay, seed, left_out) for seed in seeds]
        self.replays = [
            [joined(found, batch.task)] if found and s.own == "nothing" else list(found)
            for found in drawn
        ]

    @property
    def phase(self) -> str:
        first = next(iter(self.replays), [])
        return f"train with {sum(len(each.labels) for each in first)} replayed"

    def step(self, batch: Batch) -> StepResult:
        for glance, replayed in enumerate(self.replays):
            seed = self.seed.child("slices", batch.task, self.position.step, glance)
            loss, scores = self.glance(batch, replayed, cut(batch, self.settings.slices, seed))
        self.after_step(batch)
        correct = int((scores.argmax(1) == batch.labels).sum())
        return StepResult(loss, correct, len(batch.labels))

    def glance(
        self, batch: Batch, replayed: list[Batch], slices: list[Batch]
    ) -> tuple[float, Tensor]:
        """One update: its loss and the scores of the batch."""
        raise NotImplementedError

    def after_step(self, batch: Batch) -> None:
        if self.position.epoch == 0:
            self.memory.observe(batch)

    def scores_at(
        self, values: Sequence[Tensor], batch: Batch, learning: bool = True, keep: bool = False
    ) -> Tensor:
        """Scores of `batch` if `values` were the weights of the present task.

        While `learning`, norms use the statistics of the batch, which are kept or forgotten.
        """
        network = self.network(batch.task)
        network.learning(learning)
        weights = dict(zip(self.paths, values, strict=True))
        statistics = on_copies(network, batch.task, keep) if learning else nullcontext()
        with statistics:
            scores: Tensor = functional_call(network, weights, (batch.images, batch.task))
        return scores

    def loss_at(
        self, values: Sequence[Tensor], batch: Batch, replayed: Sequence[Batch], keep: bool
    ) -> tuple[Tensor, Tensor]:
        """The mean loss over batch and exemplars, each on its own task's classes; and scores."""
        scores = self.scores_at(values, batch, keep=keep)
        total = F.cross_entropy(scores, batch.labels, reduction="sum")
        for each in replayed:
            found = self.scores_at(values, each, learning=False)
            total = total + F.cross_entropy(found, each.labels, reduction="sum")
        return total / sum(len(b.labels) for b in (batch, *replayed)), scores.detach()


def paths(network: DenseNetwork, tensors: Sequence[Tensor]) -> list[str]:
    """The names of parameters as torch has them; of one that several tasks share, the first."""
    names: dict[int, str] = {}
    for name, parameter in network.named_parameters():
        names.setdefault(id(parameter), name)
    return [names[id(tensor)] for tensor in tensors]


def cut(batch: Batch, slices: int, seed: Seed) -> list[Batch]:
    """The batch, shuffled, in so many slices; in fewer if it has fewer images."""
    count = len(batch.labels)
    order = torch.randperm(count, generator=seed.torch())
    return [
        replace(batch, images=batch.images[i], labels=batch.labels[i], index=batch.index[i],
                raw=batch.raw[i])
        for i in order.tensor_split(min(slices, count))
    ]  # fmt: skip


def joined(batches: Sequence[Replay], task: str) -> Batch:
    """Exemplars of several tasks in one batch of `task`, which shares norms and head with them."""
    columns = [(b.images, b.labels, b.index, b.raw) for b in batches]
    images, labels, index, raw = (torch.cat(parts) for parts in zip(*columns, strict=True))
    return Batch(images, labels, task, index, raw)


def clipped(gradients: Sequence[Tensor | None], norm: float) -> list[Tensor | None]:
    """The gradients, shortened together to `norm` if they are longer."""
    found = [g for g in gradients if g is not None]
    length = torch.stack([g.norm() for g in found]).norm() if found else torch.zeros(())
    factor = (norm / (length + 1e-6)).clamp(max=1.0)
    return [None if g is None else g * factor for g in gradients]
