"""SoftNet: Soft-SubNetworks (Kang et al. 2023). Minor weights are not left out, but turned down.

    W · (1 if |score| is among the largest `density` of its layer, else u),   u ~ U(0, 1)

Major weights hold what was learned and never move again; minor ones are the room for what comes.
In training u is drawn anew in every step. A task that is learned keeps its major weights, one bit
each, and a draw of u of its own, which is a seed and takes no room.

Every weight takes part in every task, so the ticket is as large as the network. `retained.nominal`
is the share of major weights, as in the tables of the paper; `retained.effective` tells the truth.
Later tasks move minor weights that earlier ones read, turned down, so something is forgotten.

Deviations from the official code
- It has one base task and few-shot sessions that keep the mask of the base task. Here every task
  ranks the scores again and keeps a mask of its own; the union of all major weights is frozen.
- `minor_step` and `minor_layers` are 1 and 0 (all layers learn with the full step), because our
  later tasks are whole ones; the official sessions use 0.01 and the last two stages.
- Norms belong to tasks, and the step size falls to 0 in a line, as in all methods here.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rivals.baselines.scored_layers import RandomMinorWeights
from rivals.baselines.wsn import WSN, WSNSettings
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.streams.task import Batch, Task

BATCH = 256  # images at a time, for prototypes
SHARPNESS = 16.0  # of prototypes: cosines are multiplied by it, so that softmax can tell them apart


class SoftNetSettings(WSNSettings):
    """How many weights are major, and what minor ones may do after the first task."""

    density: float = 0.8
    optimizer: Literal["adam", "sgd"] = "sgd"
    weight_decay: float = 5e-4
    minor_step: float = Field(
        1.0, description="step of shared weights after the first task, a share of lr"
    )
    minor_layers: int = Field(
        0, description="only the last so many layers learn after the first task; 0: all"
    )
    classify: Literal["head", "prototypes"] = Field(
        "head", description="head | prototypes: by the cosine to the mean feature of each class"
    )

    def check(self) -> None:
        super().check()
        if not 0 <= self.minor_step <= 1:
            raise RivalsError(f"minor_step is {self.minor_step}, but is a share from 0 to 1.")
        if self.minor_step < 1 and self.optimizer == "adam":
            raise RivalsError(
                f"minor_step is {self.minor_step}, but Adam's steps do not follow the size of "
                "gradients; use optimiser=sgd, or minor_step=1."
            )
        if self.minor_layers < 0:
            raise RivalsError(f"minor_layers is {self.minor_layers}, but must not be negative.")


@methods.register("softnet")
class SoftNet(WSN):
    """WSN whose masks are soft."""

    settings: SoftNetSettings
    settings_class = SoftNetSettings
    soft = True

    def train_logits(self, batch: Batch) -> Tensor:
        noise = RandomMinorWeights(
            batch.task, self.seed.child("minor", batch.task, self.position.step)
        )
        network = self.scored().learning(True)
        scores: Tensor = network(batch.images, batch.task, noise)
        return scores

    def adjust_gradients(self, batch: Batch) -> None:
        super().adjust_gradients(batch)
        if self.previous() is None:
            return
        layers = self.scored().layers()
        moving = self.settings.minor_layers or len(layers)
        for number, layer in enumerate(layers):
            share = self.settings.minor_step if number >= len(layers) - moving else 0.0
            for parameter in (layer.weight, layer.scores):
                if share < 1 and parameter.grad is not None:
                    parameter.grad.mul_(share)

    def retained(self, task: str) -> int:
        """Everything: minor weights take part as well."""
        return sum(p.numel() for p in self.ticket(task).parameters())

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        if self.settings.classify == "prototypes":
            self.remember_prototypes(task)

    @torch.no_grad()
    def remember_prototypes(self, task: Task) -> None:
        """The mean feature of each class, scaled to norm 1, becomes its row of the head.

        The norm of an image's own feature is the same for all classes, so the best product is
        the best cosine; a class without images keeps a row of zeros.
        """
        network, head = self.scored().learning(False), self.scored().heads[task.name]
        sums = torch.zeros_like(head.weight).flatten(1)  # (classes, features)
        with self.charged():
            for images, labels in zip(
                torch.split(task.train.images, BATCH),
                torch.split(task.train.labels, BATCH),
                strict=True,
            ):
                features = network.flow(task.preprocessing(images), task.name).values
                sums.index_add_(0, labels, features)
        rows = torch.nn.functional.normalize(sums, dim=1) * SHARPNESS
        head.load({"weight": rows.view(head.weight.shape), "bias": torch.zeros_like(head.bias)})
