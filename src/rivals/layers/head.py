"""A linear head per task, on the units that are live at the end of the body."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.layers.cut import cutting, linear, run
from rivals.layers.flow import Flow
from rivals.layers.norm import key


class Head(nn.Module):
    """Scores for the classes of one task: weight (classes, width, positions), a column per unit."""

    def __init__(self, classes: int, width: int, positions: int, live: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        bound = math.sqrt(1.0 / (live * positions))
        weight = (torch.rand(classes, width, positions, generator=generator) * 2 - 1) * bound
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(classes))

    def columns(self, flow: Flow) -> Tensor:
        """The weight for the live units. A head kept for the winners has one column per block."""
        width = self.weight.shape[1]
        if flow.ids is None or len(flow.ids) == width:
            return self.weight
        return self.weight[:, flow.ids % width]

    def forward(self, flow: Flow) -> Tensor:
        weight = self.columns(flow).flatten(1)
        if cutting(flow.values):
            return run(linear(weight.detach(), self.bias.detach()), flow.values)
        return F.linear(flow.values, weight, self.bias)


class Heads(nn.Module):
    """One head per task, added as tasks come."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = nn.ModuleDict()

    def __getitem__(self, task: str) -> Head:
        head = self.tasks[key(task)]
        assert isinstance(head, Head)
        return head

    def begin(self, task: str, head: Head) -> None:
        self.tasks[key(task)] = head

    @torch.no_grad()
    def keep(self, task: str, ids: Tensor) -> None:
        """Reduce the head of `task` to the columns `ids`."""
        head = self[task]
        head.weight = nn.Parameter(head.weight[:, ids].clone())

    def drop(self, task: str) -> None:
        if key(task) in self.tasks:
            del self.tasks[key(task)]
