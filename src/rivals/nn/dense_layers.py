"""Ordinary layers with a norm per task, in the same flow as the rival ones."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.nn.activations import Activations
from rivals.nn.convolve import convolve
from rivals.nn.cut import conv2d, cutting, linear, run
from rivals.nn.task_norm import TaskNorm
from rivals.nn.task_state import TaskTable


class DenseLayer(nn.Module):
    """A weight without bias, the task's norm, ReLU."""

    weight: nn.Parameter

    def __init__(
        self, width: int, *, activation: str = "relu", norm: str = "batch", activate: bool = True,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.width, self.activation, self.seed = width, activation, seed
        self.norm = TaskNorm(norm)
        self.rectify = activate and activation == "relu"
        self.wired = False

    def attach(self, table: TaskTable, number: int) -> None:
        """Keep what belongs to tasks in `table`, under the number of this layer."""
        self.norm.attach(table, number)

    def weight_shape(self, columns: int) -> tuple[int, ...]:
        raise NotImplementedError

    def weight_for(self, flow: Activations) -> Tensor:
        """The weight that `flow` meets; here the same for all tasks."""
        return self.weight

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        raise NotImplementedError

    def plain(self, weight: Tensor, bias: Tensor) -> nn.Module:
        raise NotImplementedError

    def wire(self, flow: Activations) -> None:
        shape = self.weight_shape(flow.values.shape[1])
        std = math.sqrt((2.0 if self.activation == "relu" else 1.0) / math.prod(shape[1:]))
        generator = torch.Generator().manual_seed(self.seed)
        self.weight = nn.Parameter(torch.randn(shape, generator=generator) * std)
        self.wired = True

    def forward(self, flow: Activations) -> Activations:
        if not self.wired:
            self.wire(flow)
        weight = self.weight_for(flow)
        if cutting(flow.values):
            factor, offset = self.norm.folded(flow.task)
            weight = weight.detach() * factor.view(-1, *(1,) * (weight.dim() - 1))
            values = run(self.plain(weight, offset.expand(len(weight))), flow.values)
        else:
            values = self.norm(self.connect(flow.values, weight), flow.task)
        if self.rectify:
            values = run(nn.ReLU(), values) if cutting(values) else F.relu_(values)
        return Activations(values, flow.task, flow.selection)


class DenseLinear(DenseLayer):
    """Linear → norm → ReLU."""

    def weight_shape(self, columns: int) -> tuple[int, ...]:
        return self.width, columns

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        return F.linear(values, weight)

    def plain(self, weight: Tensor, bias: Tensor) -> nn.Module:
        return linear(weight, bias)


class DenseConv2d(DenseLayer):
    """Convolution → norm → ReLU."""

    def __init__(
        self, width: int, kernel: int, stride: int = 1, padding: int = 0, *,
        activation: str = "relu", norm: str = "batch", activate: bool = True, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(width, activation=activation, norm=norm, activate=activate, seed=seed)
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def weight_shape(self, columns: int) -> tuple[int, ...]:
        return self.width, columns, self.kernel, self.kernel

    def connect(self, values: Tensor, weight: Tensor) -> Tensor:
        return convolve(values, weight, self.stride, self.padding)

    def plain(self, weight: Tensor, bias: Tensor) -> nn.Module:
        return conv2d(weight, bias, self.stride, self.padding)
