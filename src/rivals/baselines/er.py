"""ER: experience replay with tiny memories (Chaudhry et al. 2019).

Every batch is joined by exemplars drawn from a reservoir, and one cross-entropy is minimised:

    loss = mean over (x, y, t) in batch ∪ replay of CE(scores of the classes of t, y)

`loss_over: seen` is the class-incremental variant: CE over the classes of all tasks so far.

Deviations from the official code
- An example enters the reservoir once, in the first epoch; La-MAML's ER offers it in every epoch.
- Exemplars are stored without augmentation and augmented anew at each replay, as in Mammoth.
- `shared_norms: false` is an option of this library. A step replays few exemplars of each task, so
  they are normalised with the running statistics of their task instead of their own.
- The learning rate falls to 0 over each task, as in all methods here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from rivals.baselines.dense_method import DenseMethod, DenseSettings, default
from rivals.baselines.memory.exemplar import Replay
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import MemorySettings
from rivals.baselines.seen_classes import SeenClasses
from rivals.learn.method import methods
from rivals.nn.activations import Activations
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch


class ERSettings(DenseSettings):
    """What is replayed, and which classes compete."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    shared_norms: bool = default(DenseSettings, "shared_norms", True)
    memory: MemorySettings = MemorySettings(size=200, counted_in="images")
    replay_size: int = Field(
        0,
        ge=0,
        description="Exemplars in each step; 0 means as many as the batch has. La-MAML's ER: 1.",
    )
    loss_over: Literal["task", "seen"] = Field(
        "task",
        description="Classes in the loss: those of each example's task, or all seen so far.",
    )
    clip_grad: float = Field(
        0.0, ge=0, description="Largest norm of the gradient; 0 means no limit. La-MAML's ER: 2."
    )

    def check(self) -> None:
        super().check()
        if self.loss_over == "seen":
            self.need_shared_norms("with loss_over=seen the classes of all tasks compete")


@methods.register("er")
class ER(DenseMethod):
    """Fine-tuning with a few stored examples in every step."""

    settings: ERSettings
    settings_class = ERSettings
    trains_all_heads = True
    memory: ExemplarMemory

    def __init__(self, plan: NetworkPlan, settings: ERSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.memory = ExemplarMemory(
            settings.memory.budget, "reservoir", seed.child("memory"), device=self.device
        )
        if settings.loss_over == "seen":
            self.seen = SeenClasses(self.known, self.network)
        self.drawn: list[Replay] = []  # for the present step

    @property
    def phase(self) -> str:
        return f"with {sum(len(part.labels) for part in self.drawn)} exemplars"

    def before_step(self, batch: Batch) -> None:
        """Draw exemplars uniformly, none twice; those of the present task are among them."""
        seed = self.seed.child("replay", batch.task, self.position.step)
        count = self.settings.replay_size or len(batch.labels)
        self.drawn = self.memory.sample(count, seed, augmentation=self.settings.augmentation)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean of cross-entropies over batch and replay; scores of the batch alone."""
        parts = [batch, *self.drawn]
        losses, first = [], torch.empty(0)
        for part, flow in zip(parts, self.flows(parts), strict=True):
            heads = self.network().heads
            own = heads[part.task](flow)
            first = own if part is batch else first
            scores, labels = own, part.labels
            if self.seen is not None:
                scores = torch.cat([heads[task](flow) for task in self.known], 1)
                labels = self.seen.labels(part)
            losses.append(F.cross_entropy(scores, labels, reduction="sum"))
        return torch.stack(losses).sum() / sum(len(part.labels) for part in parts), first

    def flows(self, parts: Sequence[Batch]) -> list[Activations]:
        """The features of each part: in one pass, or each with the norm of its task."""
        network = self.network(self.current)
        if self.settings.shared_norms:
            images = torch.cat([part.images for part in parts])
            flow = network.learning(True).flow(images, parts[0].task)
            values = torch.split(flow.values, [len(part.labels) for part in parts])
            return [replace(flow, values=each) for each in values]
        return [network.learning(part is parts[0]).flow(part.images, part.task) for part in parts]

    def adjust_gradients(self, batch: Batch) -> None:
        if self.settings.clip_grad:
            torch.nn.utils.clip_grad_norm_(self.trained(), self.settings.clip_grad)

    def after_step(self, batch: Batch) -> None:
        if self.position.epoch == 0:
            self.memory.observe(batch)
