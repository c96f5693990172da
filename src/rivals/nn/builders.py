"""One definition of a network, three kinds of it: of rival units, dense, or of the ticket's shape.

A network is a function from a builder to a body: it asks the builder for layers of a full width,
`build.conv(64, 3)`, and never needs to know which layers it gets.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn

from rivals.errors import RivalsError
from rivals.nn.blocks import RivalBlocks
from rivals.nn.dense_layers import DenseConv2d, DenseLinear
from rivals.nn.twta_layers import TWTAConv2d, TWTALinear


class LayerBuilder(Protocol):
    """Makes the layers of a network. `stream` is what a residual stage writes to."""

    activation: str
    units: int  # rivals in a block, which the widths are chosen for

    def conv(
        self, width: int, kernel: int, stride: int = 1, padding: int = 0, *,
        stream: RivalBlocks | None = None, activate: bool = True,
    ) -> nn.Module: ...  # fmt: skip

    def linear(self, width: int) -> nn.Module: ...

    def stream(self, width: int) -> RivalBlocks | None:
        """What all layers that write to one residual stage share."""
        ...


class RivalBuilder:
    """Layers of blocks of `units` rivals."""

    def __init__(
        self,
        units: int,
        activation: str = "relu",
        norm: str = "batch",
        init: str = "active",
        stored: bool = False,
    ) -> None:
        self.units, self.activation = units, activation
        self.options: dict[str, Any] = {
            "activation": activation,
            "norm": norm,
            "init": init,
            "stored": stored,
        }

    def blocks(self, width: int) -> int:
        if width % self.units:
            below = width // self.units * self.units
            near = f"{below} or {below + self.units}" if below else str(self.units)
            raise RivalsError(
                f"A layer of width {width} cannot be split into blocks of {self.units} units; "
                f"use a width of {near}, or other units."
            )
        return width // self.units

    def conv(
        self, width: int, kernel: int, stride: int = 1, padding: int = 0, *,
        stream: RivalBlocks | None = None, activate: bool = True,
    ) -> nn.Module:  # fmt: skip
        return TWTAConv2d(
            self.blocks(width), self.units, kernel, stride, padding, rivals=stream,
            activate=activate, **self.options,
        )  # fmt: skip

    def linear(self, width: int) -> nn.Module:
        return TWTALinear(self.blocks(width), self.units, **self.options)

    def stream(self, width: int) -> RivalBlocks | None:
        return RivalBlocks(self.blocks(width), self.units)


class DenseBuilder:
    """Ordinary layers, of the `full` width or as narrow as those of a `ticket`."""

    def __init__(
        self, units: int, size: str = "full", activation: str = "relu", norm: str = "batch"
    ) -> None:
        self.units, self.activation, self.norm = units, activation, norm
        self.shape = RivalBuilder(units if size == "ticket" else 1)

    def conv(
        self, width: int, kernel: int, stride: int = 1, padding: int = 0, *,
        stream: RivalBlocks | None = None, activate: bool = True,
    ) -> nn.Module:  # fmt: skip
        return DenseConv2d(
            self.shape.blocks(width), kernel, stride, padding, activation=self.activation,
            norm=self.norm, activate=activate,
        )  # fmt: skip

    def linear(self, width: int) -> nn.Module:
        return DenseLinear(self.shape.blocks(width), activation=self.activation, norm=self.norm)

    def stream(self, width: int) -> RivalBlocks | None:
        return None
