"""Layers of rival units: TWTALinear (Eq. 1) and TWTAConv2d (Eq. 4), on one shared weight.

                 x (batch, columns, …)                      W (rows, columns, taps)
                        │                                        ▲ columns: units that flow in
    one draw ──► live rows, gates ──► W[rows, columns] ──► conv or linear
                        │                                  ▼
                        └────────► norm of the task ──► gate ──► ReLU ──► y (batch, live rows, …)

Only live rows are computed and only the columns that flow in are read. Layers take their input
shape from the first flow they see, as the lazy modules of torch do.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.nn.activations import Activations
from rivals.nn.blocks import RivalBlocks
from rivals.nn.convolve import convolve
from rivals.nn.cut import conv2d, cutting, linear, run
from rivals.nn.generated_weight import GeneratedWeight
from rivals.nn.shared_weight import HeldWeight, SharedWeight
from rivals.nn.task_norm import TaskNorm
from rivals.nn.training_copy import TrainingCopy


class TWTALayer(nn.Module):
    """What dense and convolutional layers share: rivals, one weight, a norm per task.

    `rivals` may be shared with other layers, whose units then win together. `unit` is "relu" or
    "linear" (the paper's letter). `activate=False` leaves the ReLU to whoever adds flows up. `held`
    keeps all weights in memory; otherwise those that nobody claimed are generated when read.
    """

    weight: SharedWeight
    work: TrainingCopy  # while a task is learned

    def __init__(
        self,
        blocks: int,
        units: int,
        *,
        rivals: RivalBlocks | None = None,
        unit: str = "relu",
        norm: str = "batch",
        activate: bool = True,
        initial: str = "live",
        held: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.rivals = rivals or RivalBlocks(blocks, units)
        self.norm = TaskNorm(norm)
        self.active = activate and unit == "relu"
        self.unit, self.initial, self.held, self.seed = unit, initial, held, seed
        self.source: RivalBlocks | None = None
        self.wired = False

    def taps_of(self, flow: Activations, columns: int) -> int:
        """How many weights an edge has."""
        raise NotImplementedError

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        """Values of live columns, and the live slice (rows, columns, taps) → values of the rows."""
        raise NotImplementedError

    def arrange(self, weight: Tensor) -> Tensor:
        """The same slice in the order in memory that `connect` would bring it to, step by step."""
        return weight

    def plain(self, weight: Tensor, bias: Tensor) -> nn.Module:
        """An ordinary layer of torch with this slice as its weight."""
        raise NotImplementedError

    def wire(self, flow: Activations) -> None:
        """Take the input's shape and draw the untrained weights for it."""
        self.source = flow.source
        columns = flow.source.count if flow.source else flow.values.shape[1]
        live = flow.source.blocks if flow.source else columns
        taps = self.taps_of(flow, live)
        gain = 2.0 if self.unit == "relu" else 1.0
        if self.initial == "live":  # only one unit of a block is live: that is the fan
            std = math.sqrt(gain / (live * taps))
        else:  # "glorot", on the full width, as the paper has it
            kernel = taps if isinstance(self, TWTAConv2d) else 1
            std = math.sqrt(2.0 / (columns * taps + self.rivals.count * kernel))
        kind = HeldWeight if self.held else GeneratedWeight
        self.weight = kind(self.rivals.count, columns, taps, std, self.seed)
        self.wired = True

    def fit(self) -> None:
        """Grow the weight to the present number of rivals on both sides."""
        self.weight.resize(
            self.rivals.count, self.source.count if self.source else self.weight.columns
        )

    def columns(self, flow: Activations) -> Tensor:
        return torch.arange(self.weight.columns) if flow.ids is None else flow.ids

    def forward(self, flow: Activations) -> Activations:
        if not self.wired:
            self.wire(flow)
        live = flow.selection.live(self.rivals)
        weight = flow.selection.weight(self, live.ids, self.columns(flow))
        if cutting(flow.values):
            factor, offset = self.norm.folded(flow.task)
            bias = offset.expand(len(weight))
            values = run(self.plain(weight * factor.view(-1, 1, 1), bias), flow.values)
        else:
            values = self.norm(self.connect(flow.values, weight), flow.task, live)
        if self.active:
            values = run(nn.ReLU(), values) if cutting(values) else F.relu_(values)
        return Activations(values, flow.task, flow.selection, self.rivals, live.ids)

    def ticket_columns(self, task: str) -> Tensor:
        """The columns a task uses: the winners of the layer before, or the whole input."""
        return self.source.winner_ids(task) if self.source else torch.arange(self.weight.columns)


class TWTALinear(TWTALayer):
    """Eq. 1: y = ξ · W x, with (blocks, units) rivals in place of dense ReLU units."""

    def taps_of(self, flow: Activations, columns: int) -> int:
        return flow.values.shape[1] // columns

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        return F.linear(values, weight.flatten(1))

    def plain(self, weight: Tensor, bias: Tensor) -> nn.Module:
        return linear(weight.flatten(1), bias)


class TWTAConv2d(TWTALayer):
    """Eq. 4: Y = ξ · (W ★ X); the feature maps of a kernel are the rivals of a block."""

    def __init__(
        self,
        blocks: int,
        units: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        **options: Any,  # those of TWTALayer
    ) -> None:
        super().__init__(blocks, units, **options)
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def taps_of(self, flow: Activations, columns: int) -> int:
        return self.kernel**2

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        weight = weight.view(*weight.shape[:2], self.kernel, self.kernel)
        return convolve(values, weight, self.stride, self.padding)

    def arrange(self, weight: Tensor) -> Tensor:
        return weight.transpose(1, 2).contiguous().transpose(1, 2)  # channels last

    def plain(self, weight: Tensor, bias: Tensor) -> nn.Module:
        weight = weight.reshape(*weight.shape[:2], self.kernel, self.kernel)
        return conv2d(weight, bias, self.stride, self.padding)
