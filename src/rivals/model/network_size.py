"""How large a network would be, found out before memory is taken for it.

The network is built of layers that have no weights and answer with one number seen many times, so
its own definition says which sizes meet.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import nn

from rivals.errors import RivalsError
from rivals.model import limits
from rivals.nn.activations import Activations
from rivals.nn.blocks import RivalBlocks
from rivals.nn.builders import RivalBuilder
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.selection import Wiring


@cache
def check_network_size(
    settings: NetworkSettings, input_shape: tuple[int, int, int]
) -> tuple[int, ...]:
    """Refuse a network that would be larger than any device's; the weights of a ticket's layers."""
    body = NetworkPlan(settings, input_shape).body(SizeBuilder(settings.units))
    try:
        body(Activations(torch.zeros(1, *input_shape), "", Wiring("")))
    except RuntimeError as error:  # a layer is left with no pixels
        size = " × ".join(map(str, input_shape))
        raise RivalsError(
            f"The network '{settings.architecture}' does not take pictures of {size}; use larger "
            "ones."
        ) from error
    return tuple(each.weights for each in body.modules() if isinstance(each, CountingLayer))


class SizeBuilder:
    """Layers that count the weights of a ticket and the values that flow between its layers."""

    def __init__(self, units: int) -> None:
        self.units, self.activation = units, "relu"
        self.shape = RivalBuilder(units)
        self.weights = 0

    def conv(
        self, width: int, kernel: int, stride: int = 1, padding: int = 0, *,
        stream: RivalBlocks | None = None, activate: bool = True,
    ) -> nn.Module:  # fmt: skip
        return CountingLayer(self, self.shape.blocks(width), kernel, stride, padding)

    def linear(self, width: int) -> nn.Module:
        return CountingLayer(self, self.shape.blocks(width))

    def stream(self, width: int) -> RivalBlocks | None:
        return None

    def count(self, weights: int, values: int) -> None:
        self.weights += weights
        if self.weights > limits.TICKET_WEIGHTS or values > limits.ACTIVATIONS:
            raise RivalsError(
                f"The model's network has at least {self.weights:,} weights for a task and "
                f"{values:,} values in a layer, but at most {limits.TICKET_WEIGHTS:,} and "
                f"{limits.ACTIVATIONS:,} are allowed; use a smaller network."
            )


class CountingLayer(nn.Module):
    """A convolution, or without a kernel a linear layer: only its sizes."""

    def __init__(
        self, sizes: SizeBuilder, rows: int, kernel: int = 0, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__()
        self.sizes, self.rows = sizes, rows
        self.kernel, self.stride, self.padding = kernel, stride, padding
        self.weights = 0  # known after a forward pass

    def forward(self, flow: Activations) -> Activations:
        columns, *sides = flow.values.shape[1:]
        shape = [self.rows]
        shape += [(s + 2 * self.padding - self.kernel) // self.stride + 1 for s in sides]
        self.weights = self.rows * columns * max(1, self.kernel) ** 2
        self.sizes.count(self.weights, math.prod(shape))
        return flow.map(lambda _: torch.zeros(1).expand(1, *shape))
