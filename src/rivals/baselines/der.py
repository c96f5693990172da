"""DER++: Dark Experience Replay (Buzzega et al. 2020). Stored examples keep their old scores.

    loss = CE(batch) + α · MSE(scores of a replay, those stored with it) + β · CE(another replay)

Exemplars come from a reservoir that every step offers its batch to, with the scores that the batch
has just been given; in a later epoch an example may enter again, with newer scores, as in the
official code. The two replays are drawn independently. Classes of all tasks compete.

Deviations from the official code
- Heads grow with the tasks, so stored scores have as many columns as there were classes then, and
  the error is taken over these; the official head has its final size from the beginning.
- Exemplars are stored without augmentation and augmented anew at each replay, as in Mammoth.
- The learning rate falls to 0 over each task, as in all methods here.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch

PURPOSES = ("scores", "labels")  # of the two replays


class DERSettings(DenseSettings):
    """What is replayed, and the weights of the losses."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    shared_norms: bool = default(DenseSettings, "shared_norms", True)
    memory: MemorySettings = MemorySettings(size=500, counted_in="images")
    replay_size: int = Field(
        0,
        ge=0,
        description="Exemplars in each of the two replays; 0 means as many as the batch has.",
    )
    alpha: float = Field(
        0.1, ge=0, allow_inf_nan=False, description="Weight of the error of stored scores."
    )
    beta: float = Field(
        0.5, ge=0, allow_inf_nan=False, description="Weight of the loss on stored labels."
    )
    loss_over: Literal["seen", "task"] = Field(
        "seen",
        description="Classes in the loss of the batch: all seen so far, or those of its task.",
    )

    def check(self) -> None:
        super().check()
        self.need_shared_norms("the classes of all tasks compete")


class DarkReplay:
    """The replay of DER++ and its losses: labels and scores of stored examples."""

    def __init__(self, settings: DERSettings, memory: ExemplarMemory, seen: SeenClasses) -> None:
        self.settings, self.memory, self.seen = settings, memory, seen
        self.for_scores: list[Replay] = []  # of the present step
        self.for_labels: list[Replay] = []
        self.batch_scores = torch.empty(0)  # (n, classes seen), of the present batch

    @property
    def phase(self) -> str:
        return f"with {size(self.for_scores)} + {size(self.for_labels)} exemplars"

    def draw(self, batch: Batch, seed: Seed, step: int) -> None:
        """Draw the exemplars of a step, of any task; no exemplar twice in one replay."""
        count = self.settings.replay_size or len(batch.labels)
        kind = self.settings.augmentation
        seeds = [seed.child("replay", purpose, batch.task, step) for purpose in PURPOSES]
        self.for_scores, self.for_labels = (
            self.memory.sample(count, each, augmentation=kind) for each in seeds
        )

    def clear(self) -> None:
        """Replay nothing in this step."""
        self.for_scores, self.for_labels = [], []

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of the step, and the scores of the batch for the classes of its task."""
        scores = self.seen.train_scores(batch.images)
        own = self.seen.own_columns(scores, batch.task)
        self.batch_scores = scores.detach()
        if self.settings.loss_over == "seen":
            loss = F.cross_entropy(scores, self.seen.labels(batch))
        else:
            loss = F.cross_entropy(own, batch.labels)
        if self.for_scores:
            loss = loss + self.settings.alpha * self.score_loss(self.for_scores)
        if self.for_labels:
            loss = loss + self.settings.beta * self.label_loss(self.for_labels)
        return loss, own

    def score_loss(self, parts: list[Replay]) -> Tensor:
        """The mean squared change of scores since they were stored."""
        scores = self.seen.train_scores(torch.cat([part.images for part in parts]))
        rows = torch.split(scores, [len(part.labels) for part in parts])
        changes = [
            (now[:, : part.extra["scores"].shape[1]] - part.extra["scores"]).square().mean(1)
            for now, part in zip(rows, parts, strict=True)
        ]
        return torch.cat(changes).mean()

    def label_loss(self, parts: list[Replay]) -> Tensor:
        scores = self.seen.train_scores(torch.cat([part.images for part in parts]))
        return F.cross_entropy(scores, torch.cat([self.seen.labels(part) for part in parts]))

    def store(self, batch: Batch) -> None:
        """Offer the batch to the memory, with the scores that it was given in `loss`."""
        self.memory.observe(batch, {"scores": self.batch_scores})


def size(parts: Sequence[Batch]) -> int:
    """Examples in all."""
    return sum(len(part.labels) for part in parts)


@methods.register("der")
class DER(DenseMethod):
    """Fine-tuning with replayed labels and replayed scores."""

    settings: DERSettings
    settings_class = DERSettings
    trains_all_heads = True

    def __init__(self, plan: NetworkPlan, settings: DERSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.memory = ExemplarMemory(
            settings.memory.budget, "reservoir", seed.child("memory"), device=self.device
        )
        self.seen = SeenClasses(self.known, self.network)
        self.replay = DarkReplay(settings, self.memory, self.seen)

    @property
    def phase(self) -> str:
        return self.replay.phase

    def before_step(self, batch: Batch) -> None:
        self.replay.draw(batch, self.seed, self.position.step)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.replay.loss(batch)

    def after_step(self, batch: Batch) -> None:
        self.replay.store(batch)
