"""A dense network with a score for every weight: a task uses the weights whose scores rank high.

    major = |score| among the largest `density` of its layer
    hard:  W · major                       the other weights take no part (WSN)
    soft:  W · (1 if major, else u)        u from (0, 1), drawn anew in every step (SoftNet)

Gradients pass the ranking straight through: ∂L/∂score = ∂L/∂(W · mask) · W · sign(score), for all
scores. When a task is learned its mask is stored, one bit per weight, and scores no longer matter
to it.

`ScoredTraining` is what WSN and SoftNet share: weights and scores are trained together, and weights
that earlier tasks use are frozen.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from functools import reduce
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from rivals.baselines.dense_method import DenseSettings, default
from rivals.baselines.masks import pack_bits, top_share, unpack_bits
from rivals.learn.state import State, StatePart
from rivals.nn.activations import Activations
from rivals.nn.blocks import RivalBlocks
from rivals.nn.builders import DenseBuilder
from rivals.nn.dense_layers import DenseConv2d, DenseLayer, DenseLinear
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.optimisers import SGD, Adam
from rivals.nn.selection import Selection
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed

# Layers -------------------------------------------------------------------------------------------


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
    """Selects new random scales for the minor weights of soft layers, for one training step."""

    def __init__(self, task: str, seed: Seed) -> None:
        super().__init__(task)
        self.seed = seed


class ScoredLayer(DenseLayer):
    """A dense layer whose weights are masked for each task."""

    scores: nn.Parameter
    masks: MutableMapping[str, Tensor]  # of learned tasks, one bit per weight

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
        """The major weights of `task`: stored, or as the scores rank them now."""
        if task in self.masks:
            return unpack_bits(self.masks[task], self.weight)
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
        return torch.rand(self.weight.shape, generator=seed.torch()).to(self.weight.device)

    def weight_for(self, flow: Activations) -> Tensor:
        masked: Tensor = ThroughMask.apply(  # type: ignore[no-untyped-call]
            self.weight, self.scores, self.mask(flow)
        )
        return masked

    def settle(self, task: str) -> None:
        """Store the mask that the scores make now."""
        self.masks[task] = pack_bits(top_share(self.scores, self.density))


class ScoredLinear(ScoredLayer, DenseLinear):
    """Masked linear → norm → ReLU."""


class ScoredConv2d(ScoredLayer, DenseConv2d):
    """Masked convolution → norm → ReLU."""


# Networks -----------------------------------------------------------------------------------------


class ScoredBuilder(DenseBuilder):
    """Layers with weights and scores."""

    def __init__(self, plan: NetworkPlan, size: str, density: float, soft: bool) -> None:
        s = plan.settings
        super().__init__(s.units, size, s.activation, s.norm)
        self.options: dict[str, Any] = {
            "activation": s.activation,
            "norm": s.norm,
            "density": density,
            "soft": soft,
        }

    def conv(
        self, width: int, kernel: int, stride: int = 1, padding: int = 0, *,
        stream: RivalBlocks | None = None, activate: bool = True,
    ) -> nn.Module:  # fmt: skip
        width = self.shape.blocks(width)
        return ScoredConv2d(width, kernel, stride, padding, activate=activate, **self.options)

    def linear(self, width: int) -> nn.Module:
        return ScoredLinear(self.shape.blocks(width), **self.options)


class ScoredNetwork(DenseNetwork):
    """Weights and scores are shared; `settle(task)` stores the mask of a task."""

    @classmethod
    def of(
        cls, plan: NetworkPlan, seed: Seed, size: str, density: float, soft: bool,
        tasks: TaskTable | None = None,
    ) -> ScoredNetwork:  # fmt: skip
        """The network that `plan` describes, with a score for every weight."""
        body = plan.body(ScoredBuilder(plan, size, density, soft))
        return cls(body, plan.input_shape, seed, tasks).to(plan.device)

    def layers(self) -> list[ScoredLayer]:  # type: ignore[override]
        return [module for module in self.body.modules() if isinstance(module, ScoredLayer)]

    def shared_parameters(self) -> list[Tensor]:
        return [*self.weights(), *self.scores()]

    def scores(self) -> list[nn.Parameter]:
        return [layer.scores for layer in self.layers()]

    def settle(self, task: str) -> None:
        for layer in self.layers():
            layer.settle(task)

    def used(self) -> list[Tensor]:
        """The weights that are major for any task that is learned, layer by layer."""
        found = []
        for layer in self.layers():
            nothing = torch.zeros((layer.weight.numel() + 7) // 8, dtype=torch.uint8)
            together = reduce(torch.bitwise_or, (m.cpu() for m in layer.masks.values()), nothing)
            found.append(unpack_bits(together, layer.weight))
        return found

    def used_shares(self) -> dict[str, float]:
        """The share of the weights of each layer that some task uses."""
        used = enumerate(self.used())
        return {f"layer{number}": float(mask.float().mean()) for number, mask in used}

    def masks(self, task: str) -> dict[str, Tensor]:
        """The masks of `task` as bytes; `load_masks` takes them back."""
        return {f"layer{i}": layer.masks[task] for i, layer in enumerate(self.layers())}

    def load_masks(self, task: str, tensors: dict[str, Tensor]) -> None:
        for number, layer in enumerate(self.layers()):
            layer.masks[task] = tensors[f"layer{number}"]

    def tensors(self) -> dict[str, Tensor]:
        scores = {f"layer{i}.scores": s.detach() for i, s in enumerate(self.scores())}
        return {**super().tensors(), **scores}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        super().load(tensors)
        for number, scores in enumerate(self.scores()):
            scores.copy_(tensors[f"layer{number}.scores"])


# Training -----------------------------------------------------------------------------------------


class ScoredSettings(DenseSettings):
    """How many weights a task uses, and how they are trained."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    density: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the weights of every layer that a task uses (c); heads are whole.",
    )
    optimizer: Literal["adam", "sgd"] = Field(
        "adam", description="Optimizer of weights, scores, norms and head."
    )
    adam_lr_factor: float = Field(
        0.02, gt=0, allow_inf_nan=False, description="Learning rate of Adam, as a share of lr."
    )
    eval_statistics: Literal["running", "batch"] = Field(
        "running",
        description="Norm statistics at test time: the running averages, or those of the test "
        "batch.",
    )

    def check(self) -> None:
        super().check()
        self.need_task_norms("nothing protects a shared norm from later tasks")


class ScoredTraining:
    """Trains weights and scores of one network, and freezes what earlier tasks use."""

    def __init__(self, settings: ScoredSettings) -> None:
        self.settings = settings
        self.frozen: list[Tensor] = []  # weights that earlier tasks use, layer by layer

    def make_optimizer(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        s = self.settings
        if s.optimizer == "adam":
            fused = parameters[0].device.type in ("cpu", "cuda", "mps")
            return Adam(parameters, lr=s.lr, fused=fused)
        return SGD(parameters, lr=s.lr, momentum=s.momentum)

    @property
    def lr_factor(self) -> float:
        return self.settings.adam_lr_factor if self.settings.optimizer == "adam" else 1.0

    def protect(self, network: ScoredNetwork) -> None:
        """Weight decay, then zero gradients for weights that earlier tasks use."""
        for weight, frozen in zip(network.weights(), self.frozen, strict=True):
            assert weight.grad is not None
            if self.settings.weight_decay:
                weight.grad.add_(weight.detach(), alpha=self.settings.weight_decay)
            weight.grad.masked_fill_(frozen, 0)


def scored_footprint(network: ScoredNetwork, dense: dict[str, int]) -> dict[str, int]:
    """The footprint of a dense method, with scores and masks listed by themselves."""
    layers = network.layers()
    scores = sum(layer.scores.nbytes for layer in layers)
    masks = sum(mask.nbytes for layer in layers for mask in layer.masks.values())
    return {**dense, "weights": dense["weights"] - scores, "scores": scores, "masks": masks}


def mask_parts(network: ScoredNetwork, tasks: list[str]) -> State:
    """The masks of tasks that are learned, to be saved; `load_mask_parts` takes them back."""
    return {f"masks/{task}": StatePart(network.masks(task), fixed=True) for task in tasks}


def load_mask_parts(network: ScoredNetwork, state: State) -> None:
    for name, part in state.items():
        if name.startswith("masks/"):
            network.load_masks(name.removeprefix("masks/"), part.tensors)
