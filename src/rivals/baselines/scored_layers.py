"""Layers with a score for every weight: a task reads the weights whose scores rank high.

    major = |score| among the largest `density` of its layer
    hard:  W · major                       the others take no part (WSN)
    soft:  W · (1 if major, else u)        u from (0, 1), drawn anew in every step (SoftNet)

Gradients pass the ranking straight through: ∂L/∂score = ∂L/∂(W · mask) · W · sign(score), for all
scores. Once a task is learned its mask is kept, one bit a weight, and scores no longer concern it.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from rivals.baselines.masks import pack, top_share, unpack
from rivals.nn.activations import Activations
from rivals.nn.dense_layers import DenseConv2d, DenseLayer, DenseLinear
from rivals.nn.selection import Selection
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed


class ThroughMask(torch.autograd.Function):
    """W · mask, whose gradient reaches the scores as if the mask were |score|."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(weight, scores, mask)
        return weight * mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        weight, scores, mask = ctx.saved_tensors
        return gradient * mask, gradient * weight * scores.sign(), None


class RandomMinorWeights(Selection):
    """A step of training in which the minor weights of soft layers are scaled anew."""

    def __init__(self, task: str, seed: Seed) -> None:
        super().__init__(task)
        self.seed = seed


class ScoredLayer(DenseLayer):
    """A dense layer that a task sees through its mask."""

    scores: nn.Parameter
    masks: MutableMapping[str, Tensor]  # of tasks that are learned, as bytes

    def __init__(self, *sizes: int, density: float, soft: bool = False, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.density, self.soft = density, soft
        self.attach(TaskTable(), 0)

    def attach(self, table: TaskTable, number: int) -> None:
        super().attach(table, number)
        self.masks = table.column(f"mask{number}")

    def wire(self, flow: Activations) -> None:
        super().wire(flow)
        bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))  # Kaiming-uniform with a = √5
        generator = Seed(self.seed).child("scores").torch()
        uniform = torch.rand(self.weight.shape, generator=generator)
        self.scores = nn.Parameter((uniform * 2 - 1) * bound)

    def major(self, task: str) -> Tensor:
        """The weights that count fully for `task`: kept, or as the scores rank them now."""
        if task in self.masks:
            return unpack(self.masks[task], self.weight)
        return top_share(self.scores, self.density)

    def mask(self, flow: Activations) -> Tensor:
        """What the weights are multiplied by."""
        major = self.major(flow.task).to(self.weight.dtype)
        if not self.soft:
            return major
        return torch.where(major > 0, major, self.minor(flow))

    def minor(self, flow: Activations) -> Tensor:
        """The scales of minor weights: the task's own, or in training those of the step."""
        seed = Seed(self.seed).child("minor", flow.task)
        if isinstance(flow.selection, RandomMinorWeights):
            seed = flow.selection.seed.child("minor", self.seed)
        return torch.rand(self.weight.shape, generator=seed.torch())

    def weight_for(self, flow: Activations) -> Tensor:
        masked: Tensor = ThroughMask.apply(  # type: ignore[no-untyped-call]
            self.weight, self.scores, self.mask(flow)
        )
        return masked

    def settle(self, task: str) -> None:
        """Keep the mask that the scores make now."""
        self.masks[task] = pack(top_share(self.scores, self.density))


class ScoredLinear(ScoredLayer, DenseLinear):
    """Masked linear → norm → ReLU."""


class ScoredConv2d(ScoredLayer, DenseConv2d):
    """Masked convolution → norm → ReLU."""
