"""SoftNet: Soft-SubNetworks (Kang et al. 2023). Minor weights are scaled down, not left out.

    W · (1 if |score| is among the largest `density` of its layer, else u),   u ~ U(0, 1)

Major weights hold what was learned and never change again; minor ones are free for later tasks. In
training u is drawn anew in every step. A learned task keeps its major weights, one bit each, and a
draw of u of its own, which follows from the seed and takes no storage.

Every weight takes part in every task, so the ticket is as large as the network. `retained.nominal`
is the share of major weights, as in the tables of the paper; `retained.effective` counts them all.
Later tasks change minor weights that earlier ones read, scaled down, so something is forgotten.

Deviations from the official code
- It has one base task and few-shot sessions that keep the mask of the base task. Here every task
  ranks the scores again and keeps a mask of its own; the union of all major weights is frozen.
- `minor_lr_factor` and `minor_layers` are 1 and 0 (all layers learn at the full rate), because
  later tasks here have full training sets; official sessions use 0.01 and the last two stages.
- Norms belong to tasks, and the learning rate falls linearly to 0, as in all methods here.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from rivals.baselines.dense_method import DenseMethod, default
from rivals.baselines.official_switches import ParitySettings
from rivals.baselines.scored_network import (
    RandomMinorWeights,
    ScoredNetwork,
    ScoredSettings,
    ScoredTraining,
    load_mask_parts,
    mask_parts,
    scored_footprint,
)
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.learn.state import State
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task

BATCH = 256  # images at a time, for prototypes
SHARPNESS = 16.0  # cosines to prototypes are multiplied by it, so that the softmax is not flat


class SoftNetSettings(ScoredSettings):
    """How many weights are major, and how minor ones are trained after the first task."""

    density: float = default(ScoredSettings, "density", 0.8)
    optimizer: Literal["adam", "sgd"] = default(ScoredSettings, "optimizer", "sgd")
    weight_decay: float = default(ScoredSettings, "weight_decay", 5e-4)
    minor_lr_factor: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Learning rate of shared weights after the first task, as a share of lr.",
    )
    minor_layers: int = Field(
        0, ge=0, description="Only this many last layers learn after the first task; 0 means all."
    )
    classifier: Literal["head", "prototypes"] = Field(
        "head", description="Classify by the head, or by the cosine to each class's mean feature."
    )

    def check(self) -> None:
        super().check()
        if self.minor_lr_factor < 1 and self.optimizer == "adam":
            raise RivalsError(
                f"minor_lr_factor is {self.minor_lr_factor}, but Adam's steps do not depend on the "
                "size of gradients; use optimizer=sgd, or minor_lr_factor=1."
            )


@methods.register("softnet")
class SoftNet(DenseMethod):
    """One network; a soft mask, a norm and a head for each task."""

    settings: SoftNetSettings
    settings_class = SoftNetSettings

    def __init__(self, plan: NetworkPlan, settings: SoftNetSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.parity = ParitySettings(eval_statistics=settings.eval_statistics)
        self.scored_training = ScoredTraining(settings)

    @classmethod
    def recipe_sections(cls) -> list[str]:
        """Recipes for WSN are for SoftNet as well."""
        return ["wsn", *super().recipe_sections()]

    def build(self, tasks: TaskTable | None = None, seed: Seed | None = None) -> ScoredNetwork:
        s = self.settings
        seed = seed or self.seed.child("network")
        return ScoredNetwork.of(self.plan, seed, s.network_size, s.density, soft=True, tasks=tasks)

    def scored(self) -> ScoredNetwork:
        network = self.network()
        assert isinstance(network, ScoredNetwork)
        return network

    # Training ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        super().prepare()
        self.scored_training.frozen = self.scored().used()

    def make_optimizer(self) -> torch.optim.Optimizer:
        return self.scored_training.make_optimizer(self.trained())

    def train_logits(self, batch: Batch) -> Tensor:
        noise = RandomMinorWeights(
            batch.task, self.seed.child("minor", batch.task, self.position.step)
        )
        network = self.scored().learning(True)
        scores: Tensor = network(batch.images, batch.task, noise)
        return scores

    def adjust_gradients(self, batch: Batch) -> None:
        self.scored_training.protect(self.scored())
        if self.previous() is None:
            return
        layers = self.scored().layers()
        moving = self.settings.minor_layers or len(layers)
        for number, layer in enumerate(layers):
            share = self.settings.minor_lr_factor if number >= len(layers) - moving else 0.0
            for parameter in (layer.weight, layer.scores):
                if share < 1 and parameter.grad is not None:
                    parameter.grad.mul_(share)

    def rate(self) -> float:
        return self.scored_training.lr_factor * super().rate()

    def end_task(self, task: Task) -> None:
        self.scored().settle(task.name)
        super().end_task(task)
        if self.settings.classifier == "prototypes":
            self.store_prototypes(task)

    @torch.no_grad()
    def store_prototypes(self, task: Task) -> None:
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
                images, labels = images.to(self.device), labels.to(self.device)
                features = network.flow(task.preprocessing(images), task.name).values
                sums.index_add_(0, labels, features)
        rows = torch.nn.functional.normalize(sums, dim=1) * SHARPNESS
        head.load({"weight": rows.view(head.weight.shape), "bias": torch.zeros_like(head.bias)})

    # Results -----------------------------------------------------------------------------------

    @property
    def nominal_share(self) -> float:
        return self.settings.density

    def retained(self, task: str) -> int:
        """All weights: minor ones take part as well."""
        return sum(p.numel() for p in self.ticket(task).parameters())

    def task_facts(self, task: str) -> dict[str, Any]:
        return {"retained": self.retained(task), "used": self.scored().used_shares()}

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        return scored_footprint(self.scored(), super().footprint())

    def state(self) -> State:
        done = [task for task in self.known if task != self.current]
        return {**super().state(), **mask_parts(self.scored(), done)}

    def load(self, state: State) -> None:
        load_mask_parts(self.scored(), state)
        super().load(state)
