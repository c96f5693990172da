"""A dense network with a score for every weight, which each task sees through a mask of its own."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from rivals.baselines.masks import unpack
from rivals.baselines.scored_layers import ScoredConv2d, ScoredLayer, ScoredLinear
from rivals.nn.blocks import RivalBlocks
from rivals.nn.builders import DenseBuilder
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed


class Scored(DenseBuilder):
    """Layers of a weight and scores. Widths must suit the blocks of the network they stand for."""

    def __init__(self, plan: NetworkPlan, width: str, density: float, soft: bool) -> None:
        s = plan.settings
        super().__init__(s.units, width, s.activation, s.norm)
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
    """Weights and scores are shared; `settle(task)` keeps a mask for good."""

    @classmethod
    def of(
        cls, plan: NetworkPlan, seed: Seed, width: str, density: float, soft: bool,
        tasks: TaskTable | None = None,
    ) -> ScoredNetwork:  # fmt: skip
        """The network that `plan` describes, with a score for every weight."""
        body = plan.body(Scored(plan, width, density, soft))
        return cls(body, plan.input_shape, seed, tasks).to(plan.device)

    def layers(self) -> list[ScoredLayer]:  # type: ignore[override]
        return [module for module in self.body.modules() if isinstance(module, ScoredLayer)]

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
            together = reduce(torch.bitwise_or, layer.masks.values(), nothing)
            found.append(unpack(together, layer.weight))
        return found

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
