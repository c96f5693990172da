"""Look-ahead updates, which La-MAML and FS-DGPM share: losses at weights that are only tried.

Both try a few small inner steps on parts of a batch, measure the loss at the weights these lead to,
on the whole batch and on exemplars, and learn from its gradient.

The batch is normalised by its own statistics, replayed exemplars by the running ones of their task,
as at inference: there may be a single one of a task. Statistics change once per update, at the last
weights that were tried. A batch joins the memory after its step, in the first epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from rivals.baselines.dense_method import DenseMethod, DenseSettings, default
from rivals.baselines.memory.exemplar import Replay
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import MemorySettings
from rivals.baselines.official_switches import ParitySettings, copied_statistics
from rivals.learn.method import StepResult
from rivals.nn.dense_network import DenseNetwork
from rivals.seeds import Seed
from rivals.streams.task import Batch


class LookaheadSettings(DenseSettings):
    """How often a batch is used, in how many inner steps, and what is replayed with it."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    batch_size: int = default(DenseSettings, "batch_size", 10)
    memory: MemorySettings = MemorySettings(size=200, counted_in="images")
    replay_size: int = Field(10, ge=1, description="Exemplars in each update.")
    replay_from: Literal["all", "past"] = Field(
        "all", description="Replay exemplars of all tasks, or only of earlier ones."
    )
    inner_steps: int = Field(
        5, ge=1, description="Parts of a batch; one inner step is tried on each."
    )
    updates_per_batch: int = Field(1, ge=1, description="Updates in a row on the same batch.")
    clip_grad: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="Largest norm of a gradient that is learned from, and largest entry of one "
        "that is tried.",
    )
    second_order: bool = Field(
        True, description="Differentiate through the gradients of the inner steps."
    )
    parity: ParitySettings = ParitySettings()

    def check(self) -> None:
        super().check()
        self.need_task_norms("parity.task_specific says here what tasks share")


Update = Callable[[Batch, list[Batch], list[Batch]], tuple[float, Tensor]]


class Lookahead:
    """The replay of each step, and scores and losses at weights other than the method's own."""

    def __init__(
        self, method: DenseMethod, settings: LookaheadSettings, memory: ExemplarMemory
    ) -> None:
        self.method, self.settings, self.memory = method, settings, memory
        self.replays: list[list[Batch]] = []  # of the next step, update by update
        self.names: dict[int, str] = {}  # of all that is trained, by the identity of a tensor
        self.paths: list[str] = []  # of the weights of the present task, as torch names them

    def prepare(self) -> None:
        """Name the weights of the present task, after tasks share what they are to share."""
        network = self.network()
        self.paths = paths(network, self.weights(self.method.current))
        self.names = {id(w): f"layer{i}" for i, w in enumerate(network.shared_parameters())}
        for task in network.heads:
            for part_name, part in network.own(task).items():
                for number, tensor in enumerate(part.parameters()):
                    self.names.setdefault(id(tensor), f"{task}/{part_name}.{number}")

    def network(self) -> DenseNetwork:
        return self.method.network(self.method.current)

    def weights(self, *tasks: str) -> list[Tensor]:
        """The shared weights and those of `tasks`, each once."""
        network = self.network()
        own = [tensor for task in tasks for tensor in network.task_parameters(task)]
        return list({id(t): t for t in [*network.shared_parameters(), *own]}.values())

    def all_weights(self) -> list[Tensor]:
        """Those of old tasks too: replay trains them."""
        return self.weights(*self.network().heads)

    # A step ------------------------------------------------------------------------------------

    def draw(self, batch: Batch, seed: Seed, step: int) -> None:
        """The exemplars of the next step."""
        s = self.settings
        left_out = batch.task if s.replay_from == "past" else None
        seeds = [seed.child("replay", batch.task, step, n) for n in range(s.updates_per_batch)]
        drawn = [self.memory.sample(s.replay_size, each, left_out) for each in seeds]
        one_head = s.parity.task_specific == "nothing"
        self.replays = [
            [joined(found, batch.task)] if found and one_head else list(found) for found in drawn
        ]

    @property
    def phase(self) -> str:
        first = next(iter(self.replays), [])
        return f"train with {sum(len(each.labels) for each in first)} replayed"

    def step(self, batch: Batch, seed: Seed, step: int, update: Update) -> StepResult:
        """All updates on one batch: `update(batch, exemplars, parts)` gives loss and scores."""
        for number, replayed in enumerate(self.replays):
            parts = split(
                batch, self.settings.inner_steps, seed.child("slices", batch.task, step, number)
            )
            loss, scores = update(batch, replayed, parts)
        correct = int((scores.argmax(1) == batch.labels).sum())
        return StepResult(loss, correct, len(batch.labels))

    def scores_at(
        self, values: Sequence[Tensor], batch: Batch, learning: bool = True, keep: bool = False
    ) -> Tensor:
        """Scores of `batch` if `values` were the weights of the present task.

        While `learning`, norms use the statistics of the batch, which are kept or dropped.
        """
        network = self.method.network(batch.task)
        network.learning(learning)
        weights = dict(zip(self.paths, values, strict=True))
        statistics = copied_statistics(network, batch.task, keep) if learning else nullcontext()
        # Tasks may share a module. Torch calls its parameters tied; it would replace them once for
        # each task, and then put back the replacement.
        with statistics:
            scores: Tensor = functional_call(
                network, weights, (batch.images, batch.task), tie_weights=False
            )
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


def split(batch: Batch, parts: int, seed: Seed) -> list[Batch]:
    """The batch, shuffled, in so many parts; in fewer if it has fewer images."""
    count = len(batch.labels)
    order = torch.randperm(count, generator=seed.torch()).to(batch.images.device)
    return [
        replace(batch, images=batch.images[i], labels=batch.labels[i], index=batch.index[i],
                raw=batch.raw[i])
        for i in order.tensor_split(min(parts, count))
    ]  # fmt: skip


def joined(batches: Sequence[Replay], task: str) -> Batch:
    """Exemplars of several tasks in one batch of `task`, which shares norms and head with them."""
    columns = [(b.images, b.labels, b.index, b.raw) for b in batches]
    images, labels, index, raw = (torch.cat(parts) for parts in zip(*columns, strict=True))
    return Batch(images, labels, task, index, raw)


def clipped(gradients: Sequence[Tensor | None], norm: float) -> list[Tensor | None]:
    """The gradients, scaled down together to `norm` if they are longer."""
    found = [g for g in gradients if g is not None]
    if not found:
        return [None for _ in gradients]
    length = torch.stack([g.norm() for g in found]).norm()
    factor = (norm / (length + 1e-6)).clamp(max=1.0)
    return [None if g is None else g * factor for g in gradients]
