"""DER++: Dark Experience Replay (Buzzega et al. 2020). Remembered examples keep their old scores.

    loss = CE(batch) + α · MSE(scores of a replay, those stored with it) + β · CE(another replay)

Exemplars come from a reservoir that every step offers its batch to, with the scores that the batch
has just been given; in a later epoch an example may enter again, with newer scores, as in the
official code. The two replays are drawn independently. Classes of all tasks compete.

Deviations
- Heads grow with the tasks, so stored scores have as many columns as there were classes then, and
  the error is taken over these; the official head has its final size from the beginning.
- Exemplars are kept as stored and augmented anew at each replay, as in Mammoth.
- The step size falls to 0 over each task, as in all methods here.
"""

from __future__ import annotations

import math
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
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.augment import augment
from rivals.streams.task import Batch


class DERSettings(RehearsalSettings):
    """What is replayed, and how much it weighs."""

    width: Literal["ticket", "dense"] = "dense"
    norms: Literal["task", "shared"] = "shared"
    budget: int = 500
    budget_in: Literal["class", "images", "bytes"] = "images"
    replay: int = Field(
        0, description="exemplars in each of the two draws; 0: as many as the batch has"
    )
    alpha: float = Field(0.1, description="of the stored scores")
    beta: float = Field(0.5, description="of the stored labels")
    loss_over: Literal["seen", "task"] = Field(
        "seen", description="of the batch: seen, all classes so far | task, its own alone"
    )

    def check(self) -> None:
        super().check()
        self.need_shared_norms("the classes of all tasks compete")
        if self.replay < 0:
            raise RivalsError(f"replay is {self.replay}, but must not be negative.")
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RivalsError(f"{name} is {getattr(self, name)}, but must not be negative.")


@methods.register("der")
class DER(Rehearsal):
    """Fine-tuning with replayed labels and replayed scores."""

    settings: DERSettings
    settings_class = DERSettings

    def __init__(self, plan: NetworkPlan, settings: DERSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.drawn: tuple[list[Replay], list[Replay]] = [], []  # for scores and labels, of a step
        self.given = torch.empty(0)  # scores of the present batch

    @property
    def phase(self) -> str:
        return "with {} + {} exemplars".format(*(size(parts) for parts in self.drawn))

    def before_step(self, batch: Batch) -> None:
        self.drawn = self.draw(batch, "scores"), self.draw(batch, "labels")

    def draw(self, batch: Batch, purpose: str) -> list[Replay]:
        """Exemplars of any task, none twice; none at all as long as nothing is kept."""
        seed = self.seed.child("replay", purpose, batch.task, self.position.step)
        count = self.settings.replay or len(batch.labels)
        parts = self.memory.sample(count, seed)
        if self.settings.augmentation == "none":
            return parts
        return [self.augmented(part, seed.child("augment", part.task)) for part in parts]

    def augmented(self, part: Replay, seed: Seed) -> Replay:
        images = augment(part.raw, self.settings.augmentation, seed.torch())
        return replace(part, images=self.known[part.task].preprocessing(images))

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        scores = self.all_scores(batch.images)
        first = self.first_class(batch.task)
        own = scores[:, first : first + len(self.known[batch.task].classes)]
        self.given = scores.detach()
        if self.settings.loss_over == "seen":
            loss = F.cross_entropy(scores, batch.labels + first)
        else:
            loss = F.cross_entropy(own, batch.labels)
        for_scores, for_labels = self.drawn
        if for_scores:
            loss = loss + self.settings.alpha * self.score_loss(for_scores)
        if for_labels:
            loss = loss + self.settings.beta * self.label_loss(for_labels)
        return loss, own

    def all_scores(self, images: Tensor) -> Tensor:
        """Scores of all classes seen, in training mode: (n, classes)."""
        tasks = list(self.known)
        scores: Tensor = self.network(tasks[0]).learning(True)(images, tasks[0], heads=tasks)
        return scores

    def score_loss(self, parts: list[Replay]) -> Tensor:
        """The mean square of what scores have moved by since they were stored."""
        scores = self.all_scores(torch.cat([part.images for part in parts]))
        rows = torch.split(scores, [len(part.labels) for part in parts])
        moved = [
            (now[:, : part.extra["scores"].shape[1]] - part.extra["scores"]).square().mean(1)
            for now, part in zip(rows, parts, strict=True)
        ]
        return torch.cat(moved).mean()

    def label_loss(self, parts: list[Replay]) -> Tensor:
        scores = self.all_scores(torch.cat([part.images for part in parts]))
        labels = torch.cat([part.labels + self.first_class(part.task) for part in parts])
        return F.cross_entropy(scores, labels)

    def after_step(self, batch: Batch) -> None:
        self.memory.observe(batch, {"scores": self.given})


def size(parts: Sequence[Batch]) -> int:
    """Examples in all."""
    return sum(len(part.labels) for part in parts)
