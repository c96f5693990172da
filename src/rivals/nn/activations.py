"""What flows between layers: the values, and the ids of the active units they belong to.

A layer computes only the active rows and reads only the columns that flow in, so one forward
serves relaxed training, sparse training, inference and the cutting of tickets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rivals.nn.blocks import RivalBlocks
from rivals.nn.cut import run
from rivals.nn.plain_layers import Gradients

if TYPE_CHECKING:
    from rivals.nn.selection import Selection

SIDE = 8  # of a picture made small, and of a grid of cells


@dataclass(frozen=True)
class Activations:
    """Values on their way through a network, for one task.

    `source` is the set of rivals the channels belong to and `ids` says which of its units they are;
    both are None for the input and in dense networks, where every channel is always active.
    """

    values: Tensor  # (batch, active, height, width) or (batch, active · positions)
    task: str
    selection: Selection
    source: RivalBlocks | None = None
    ids: Tensor | None = None

    @property
    def device(self) -> torch.device | None:
        """Where the values are; the CPU while a network is cut."""
        return self.values.device if isinstance(self.values, Tensor) else None

    def map(self, function: Callable[[Tensor], Tensor]) -> Activations:
        """The same units with `function` applied to their values."""
        return replace(self, values=function(self.values))

    def __add__(self, other: Activations) -> Activations:
        """The sum of two flows of the same units, as in a residual connection."""
        if self.source is not other.source:
            raise ValueError(
                "only flows of the same rivals can be added; share one RivalBlocks between them"
            )
        return replace(self, values=self.values + other.values)


class MaxPool(nn.Module):
    """Max-pooling; the units stay who they are."""

    def __init__(self, kernel: int, stride: int | None = None, padding: int = 0) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel, stride, padding)

    def forward(self, flow: Activations) -> Activations:
        return flow.map(lambda values: run(self.pool, values))


class GlobalPool(nn.Module):
    """The mean over height and width: (batch, active, height, width) → (batch, active)."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, flow: Activations) -> Activations:
        return flow.map(lambda values: run(nn.Flatten(), run(self.pool, values)))


class Flatten(nn.Module):
    """(batch, active, height, width) → (batch, active · height · width), unit after unit.

    The ids stay as they are: a linear layer knows that each unit now has several positions.
    """

    def forward(self, flow: Activations) -> Activations:
        return flow.map(lambda values: run(nn.Flatten(), values))


class SmallPixels(nn.Module):
    """The picture made small and flat.

    Squares of pixels are averaged that do not overlap, which every runtime and plain C can do. So 8
    × 8 values of a channel are left where sides are multiples of 8, and about as many elsewhere.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(max(1, round(min(height, width) / SIDE)))

    def forward(self, flow: Activations) -> Activations:
        return flow.map(lambda values: run(nn.Flatten(), run(self.pool, values)))


class EdgeGrid(nn.Module):
    """Edges by place and direction, flat: 8 directions in about 8 × 8 cells of the picture."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.gradients = Gradients(max(1, round(min(height, width) / SIDE)))

    def forward(self, flow: Activations) -> Activations:
        return flow.map(lambda values: run(nn.Flatten(), run(self.gradients, values)))


class Activation(nn.Module):
    """ReLU after an addition or after pooling, or nothing where units are linear.

    Max-pooling and ReLU may change places: values and gradients stay the same, and after pooling by
    two there is a quarter of the work.
    """

    def __init__(self, activation: str) -> None:
        super().__init__()
        self.function = nn.ReLU() if activation == "relu" else nn.Identity()

    def forward(self, flow: Activations) -> Activations:
        return flow.map(lambda values: run(self.function, values))
