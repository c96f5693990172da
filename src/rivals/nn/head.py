"""A linear head per task, on the units that are active at the end of the body."""

from __future__ import annotations

import math
from collections.abc import MutableMapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.nn.activations import Activations
from rivals.nn.cut import cutting, linear, run
from rivals.nn.task_state import TaskTable


class Head(nn.Module):
    """Scores for the classes of one task: weight (classes, width, positions), a column per unit."""

    weight: Tensor
    bias: Tensor

    def __init__(self, classes: int, width: int, positions: int, active: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        bound = math.sqrt(1.0 / (active * positions))
        weight = (torch.rand(classes, width, positions, generator=generator) * 2 - 1) * bound
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(classes))

    def columns(self, flow: Activations) -> Tensor:
        """The weight for the active units. A head kept for the winners has one column per block."""
        width = self.weight.shape[1]
        if flow.ids is None or len(flow.ids) == width:
            return self.weight
        return self.weight.index_select(1, flow.ids % width)

    def tensors(self) -> dict[str, Tensor]:
        """All of it, to be stored; `load` takes it back."""
        return {"weight": self.weight.detach(), "bias": self.bias.detach()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        self.weight.copy_(tensors["weight"])
        self.bias.copy_(tensors["bias"])

    @torch.no_grad()
    def keep(self, ids: Tensor) -> None:
        """Reduce the head to the columns `ids`."""
        self.weight = nn.Parameter(self.weight[:, ids].clone())

    def freeze(self) -> None:
        """From now on it takes no gradients."""
        self.requires_grad_(False)

    def thaw(self) -> None:
        """It takes gradients again."""
        self.requires_grad_(True)

    def forward(self, flow: Activations) -> Tensor:
        weight = self.columns(flow).flatten(1)
        if cutting(flow.values):
            return run(linear(weight.detach(), self.bias.detach()), flow.values)
        return F.linear(flow.values, weight, self.bias)


class DirectHead(Head):
    """The head of a direct task: it reads no body (`nn/stem.py`)."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__(classes, width, positions=1, active=width, seed=0)


def heads_of(table: TaskTable) -> MutableMapping[str, Head]:
    """The heads of all tasks."""
    return table.column("head")
