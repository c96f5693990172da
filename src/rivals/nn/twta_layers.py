"""Layers of rival units: TWTALinear (Eq. 1) and TWTAConv2d (Eq. 4), on one shared weight.

                 x (batch, columns, …)                      W (rows, columns, taps)
                        │                                        ▲ columns: units that flow in
    one draw ──► active rows, gates ──► W[rows, columns] ──► conv or linear
                        │                                  ▼
                        └────────► norm of the task ──► gate ──► ReLU ──► y (batch, active rows, …)

Only active rows are computed and only the columns that flow in are read. Layers take their input
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
from rivals.nn.shared_weight import GeneratedWeight, SharedWeight, StoredWeight
from rivals.nn.task_norm import TaskNorm
from rivals.nn.task_state import TaskTable
from rivals.nn.training_copy import SiblingCopy, TrainingCopy


class TWTALayer(nn.Module):
    """What dense and convolutional layers share: rivals, one weight, a norm per task.

    `rivals` may be shared with other layers, whose units then win together. `activation` is "relu"
    or "linear", as in the paper. `activate=False` leaves the ReLU to a later layer, for instance
    after an addition. `stored` keeps all weights in memory; otherwise those that no task claimed
    are computed from the seed when they are read.
    """

    weight: SharedWeight
    table: TaskTable
    training_copy: TrainingCopy | SiblingCopy  # while a task is learned

    def __init__(
        self,
        blocks: int,
        units: int,
        *,
        rivals: RivalBlocks | None = None,
        activation: str = "relu",
        norm: str = "batch",
        activate: bool = True,
        init: str = "active",
        stored: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.rivals = rivals or RivalBlocks(blocks, units)
        self.norm = TaskNorm(norm)
        self.rectify = activate and activation == "relu"
        self.activation, self.init, self.stored, self.seed = activation, init, stored, seed
        self.source: RivalBlocks | None = None
        self.wired = False
        self.attach(TaskTable(), 0)

    def attach(self, table: TaskTable, number: int) -> None:
        """Keep what belongs to tasks in `table`, under the number of this layer."""
        object.__setattr__(self, "table", table)  # the network owns it, not the layer
        self.number = number
        self.norm.attach(table, number)
        if self.wired:
            self.weight.attach(table, number)

    def taps_of(self, flow: Activations, columns: int) -> int:
        """How many weights an edge has."""
        raise NotImplementedError

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        """Active columns and the active slice (rows, columns, taps) → values of the rows."""
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
        active = flow.source.blocks if flow.source else columns
        taps = self.taps_of(flow, active)
        gain = 2.0 if self.activation == "relu" else 1.0
        if self.init == "active":  # only one unit of a block is active: that is the fan-in
            std = math.sqrt(gain / (active * taps))
        else:  # "glorot", on the full width, as the paper has it
            kernel = taps if isinstance(self, TWTAConv2d) else 1
            std = math.sqrt(2.0 / (columns * taps + self.rivals.count * kernel))
        kind = StoredWeight if self.stored else GeneratedWeight
        self.weight = kind(self.rivals.count, columns, taps, std, self.seed)
        self.weight.attach(self.table, self.number)
        self.wired = True

    def fit(self) -> None:
        """Grow the weight to the present number of rivals on both sides."""
        self.weight.resize(
            self.rivals.count, self.source.count if self.source else self.weight.columns
        )

    def columns(self, flow: Activations) -> Tensor:
        if flow.ids is None:
            return torch.arange(self.weight.columns, device=flow.device)
        return flow.ids

    def forward(self, flow: Activations) -> Activations:
        if not self.wired:
            self.wire(flow)
        active = flow.selection.active(self.rivals)
        weight = flow.selection.weight(self, active.ids, self.columns(flow))
        if cutting(flow.values):
            factor, offset = self.norm.folded(flow.task)
            bias = offset.expand(len(weight))
            values = run(self.plain(weight * factor.view(-1, 1, 1), bias), flow.values)
        else:
            values = self.norm(self.connect(flow.values, weight), flow.task, active)
        if self.rectify:
            values = run(nn.ReLU(), values) if cutting(values) else F.relu_(values)
        return Activations(values, flow.task, flow.selection, self.rivals, active.ids)

    def ticket_columns(self, task: str) -> Tensor:
        """The columns a task uses: the winners of the layer before, or the whole input."""
        if self.source:
            return self.source.winner_ids(task)
        return torch.arange(self.weight.columns, device=self.rivals.winners[task].device)


class TWTALinear(TWTALayer):
    """Eq. 1: y = ξ · W x, with (blocks, units) rivals in place of dense ReLU units.

    >>> import rivals
    >>> from torch import nn
    >>> from rivals.nn.activations import Flatten
    >>> from rivals.seeds import Seed
    >>> layer = rivals.TWTALinear(blocks=6, units=4)  # 24 units, a task uses 6 of them
    >>> body = nn.Sequential(Flatten(), layer)
    >>> network = rivals.RivalNetwork(body, input_shape=(1, 2, 5), seed=Seed(0))
    >>> layer.weight.shape  # units, inputs, weights of an edge
    (24, 10, 1)
    """

    def taps_of(self, flow: Activations, columns: int) -> int:
        return flow.values.shape[1] // columns

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        return F.linear(values, weight.flatten(1))

    def plain(self, weight: Tensor, bias: Tensor) -> nn.Module:
        return linear(weight.flatten(1), bias)


class TWTAConv2d(TWTALayer):
    """Eq. 4: Y = ξ · (W ★ X); the feature maps of a kernel are the rivals of a block.

    >>> import rivals
    >>> from torch import nn
    >>> from rivals.nn.activations import GlobalPool
    >>> from rivals.seeds import Seed
    >>> layer = rivals.TWTAConv2d(blocks=4, units=8, kernel=3, padding=1)  # 32 maps, a task uses 4
    >>> body = nn.Sequential(layer, GlobalPool())
    >>> network = rivals.RivalNetwork(body, input_shape=(3, 16, 16), seed=Seed(0))
    >>> layer.weight.shape  # maps, input channels, weights of an edge
    (32, 3, 9)
    """

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
