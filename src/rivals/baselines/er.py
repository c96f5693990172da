"""ER: experience replay with tiny memories (Chaudhry et al. 2019).

Every batch is joined by exemplars drawn from a reservoir, and one cross-entropy is descended:

    loss = mean over (x, y, t) in batch ∪ replay of CE(scores of the classes of t, y)

`loss_over: seen` is the class-incremental variant: CE over the classes of all tasks so far.

Deviations
- An example enters the reservoir once, in the first epoch; La-MAML's ER offers it in every epoch.
- Exemplars are kept as stored and augmented anew at each replay, as in Mammoth.
- `norms: task` is an option of ours. A step brings few exemplars of each task, so they are read
  with the statistics that their task has instead of their own.
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

from rivals.baselines.memory.exemplar import Replay
from rivals.baselines.rehearsal import Rehearsal, RehearsalSettings
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.nn.activations import Activations
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.augment import augment
from rivals.streams.task import Batch


class ERSettings(RehearsalSettings):
    """What is replayed, and which classes compete."""

    norms: Literal["task", "shared"] = "shared"
    budget: int = 200
    budget_in: Literal["class", "images", "bytes"] = "images"
    replay: int = Field(
        0, description="exemplars in a step; 0: as many as the batch has (La-MAML's ER: 1)"
    )
    loss_over: Literal["task", "seen"] = Field(
        "task", description="task: the classes of each example's task | seen: all classes so far"
    )
    clip: float = Field(0.0, description="largest norm of the gradient; 0: any (La-MAML's ER: 2)")

    def check(self) -> None:
        super().check()
        if self.replay < 0:
            raise RivalsError(f"replay is {self.replay}, but must not be negative.")
        if not self.clip >= 0:
            raise RivalsError(f"clip is {self.clip}, but must not be negative.")
        if self.loss_over == "seen":
            self.need_shared_norms("with loss_over=seen the classes of all tasks compete")


@methods.register("er")
class ER(Rehearsal):
    """Fine-tuning with a few remembered examples in every step."""

    settings: ERSettings
    settings_class = ERSettings

    def __init__(self, plan: NetworkPlan, settings: ERSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.drawn: list[Replay] = []  # for the present step

    @property
    def incremental(self) -> bool:
        return self.settings.loss_over == "seen"

    @property
    def phase(self) -> str:
        return f"with {sum(len(part.labels) for part in self.drawn)} exemplars"

    def before_step(self, batch: Batch) -> None:
        """Draw exemplars, uniformly and none twice; the present task's are among them."""
        seed = self.seed.child("replay", batch.task, self.position.step)
        count = self.settings.replay or len(batch.labels)
        self.drawn = [self.augmented(part, seed) for part in self.memory.sample(count, seed)]

    def augmented(self, part: Replay, seed: Seed) -> Replay:
        kind = self.settings.augmentation
        if kind == "none":
            return part
        images = augment(part.raw, kind, seed.child("augment", part.task).torch())
        return replace(part, images=self.known[part.task].preprocessing(images))

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The mean of cross-entropies over batch and replay; scores of the batch alone."""
        parts = [batch, *self.drawn]
        losses, first = [], torch.empty(0)
        for part, flow in zip(parts, self.flows(parts), strict=True):
            own = self.class_scores(flow, part.task)
            first = own if part is batch else first
            scores, labels = own, part.labels
            if self.settings.loss_over == "seen":
                scores = torch.cat([self.class_scores(flow, task) for task in self.known], 1)
                labels = labels + self.first_class(part.task)
            losses.append(F.cross_entropy(scores, labels, reduction="sum"))
        return torch.stack(losses).sum() / sum(len(part.labels) for part in parts), first

    def flows(self, parts: Sequence[Batch]) -> list[Activations]:
        """The features of each part: in one pass, or each with the norm of its task."""
        network = self.network(self.current)
        if self.settings.norms == "shared":
            images = torch.cat([part.images for part in parts])
            flow = network.learning(True).flow(images, parts[0].task)
            values = torch.split(flow.values, [len(part.labels) for part in parts])
            return [replace(flow, values=each) for each in values]
        return [network.learning(part is parts[0]).flow(part.images, part.task) for part in parts]

    def adjust_gradients(self, batch: Batch) -> None:
        if self.settings.clip:
            torch.nn.utils.clip_grad_norm_(self.trained(), self.settings.clip)

    def after_step(self, batch: Batch) -> None:
        if self.position.epoch == 0:
            self.memory.observe(batch)
