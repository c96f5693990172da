"""A linear head per task, on the units that are live at the end of the body."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.nn.activations import Activations
from rivals.nn.cut import cutting, linear, run


class Head:
    """Scores for the classes of one task: weight (classes, width, positions), a column per unit.

    Not a module, as the state of a norm is none: there is one for every task.
    """

    __slots__ = ("bias", "weight")

    def __init__(self, classes: int, width: int, positions: int, live: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        bound = math.sqrt(1.0 / (live * positions))
        weight = (torch.rand(classes, width, positions, generator=generator) * 2 - 1) * bound
        self.weight: Tensor = nn.Parameter(weight)
        self.bias: Tensor = nn.Parameter(torch.zeros(classes))

    def columns(self, flow: Activations) -> Tensor:
        """The weight for the live units. A head kept for the winners has one column per block."""
        width = self.weight.shape[1]
        if flow.ids is None or len(flow.ids) == width:
            return self.weight
        return self.weight.index_select(1, flow.ids % width)

    def parameters(self) -> list[Tensor]:
        return [self.weight, self.bias]

    def tensors(self) -> dict[str, Tensor]:
        """All of it, to be stored; `load` takes it back."""
        return {"weight": self.weight.detach(), "bias": self.bias.detach()}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        self.weight.copy_(tensors["weight"])
        self.bias.copy_(tensors["bias"])

    def freeze(self) -> None:
        """From now on it takes no gradients."""
        self.weight, self.bias = self.weight.detach(), self.bias.detach()

    def __call__(self, flow: Activations) -> Tensor:
        weight = self.columns(flow).flatten(1)
        if cutting(flow.values):
            return run(linear(weight.detach(), self.bias.detach()), flow.values)
        return F.linear(flow.values, weight, self.bias)


class Heads:
    """One head per task, added as tasks come."""

    def __init__(self) -> None:
        self.tasks: dict[str, Head] = {}

    def __getitem__(self, task: str) -> Head:
        return self.tasks[task]

    def begin(self, task: str, head: Head) -> None:
        self.tasks[task] = head

    @torch.no_grad()
    def keep(self, task: str, ids: Tensor) -> None:
        """Reduce the head of `task` to the columns `ids`."""
        head = self[task]
        head.weight = nn.Parameter(head.weight[:, ids].clone())

    def thaw(self, task: str) -> None:
        """The head of `task` takes gradients again."""
        head = self[task]
        head.weight, head.bias = (nn.Parameter(each.clone()) for each in head.parameters())

    def drop(self, task: str) -> None:
        self.tasks.pop(task, None)
