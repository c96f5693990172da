"""A frozen network as a chain of steps that a small kernel in C can carry out one by one.

    step(x) = relu(pool(convolve(x)) + an earlier step)        the pool and the sum may be missing

At the end stands the mean over positions. So are the networks of the shipped ancestors, and those
of many plain convolutional networks; what does not fit is refused in one sentence.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from rivals.errors import RivalsError

IMAGE = -1  # the number of the step that is read, where it is the picture


@dataclass(frozen=True)
class FeatureStep:
    """A convolution, and what follows it until the next one."""

    weight: Tensor  # (outputs, inputs, k, k), float64
    bias: Tensor  # (outputs,), float64
    stride: int
    padding: int
    source: int  # number of the step that it reads, or IMAGE
    pool: int = 1  # positions a side of which the largest is kept
    added: int | None = None  # number of the step that is added before the ReLU

    def __call__(self, outputs: Sequence[Tensor], image: Tensor) -> Tensor:
        """Of prepared images (n, channels, height, width) and the outputs of the steps before."""
        read = image if self.source == IMAGE else outputs[self.source]
        values = F.conv2d(read, self.weight, self.bias, self.stride, self.padding)
        values = F.max_pool2d(values, self.pool) if self.pool > 1 else values
        return F.relu(values if self.added is None else values + outputs[self.added])


def outputs_of(steps: Sequence[FeatureStep], images: Tensor) -> list[Tensor]:
    """The output of every step, of prepared images in float64."""
    found: list[Tensor] = []
    for step in steps:
        found.append(step(found, images))
    return found


def feature_steps(network: nn.Module, name: str) -> tuple[FeatureStep, ...]:
    """The steps of a plain network that ends with the mean over positions."""
    if not isinstance(network, fx.GraphModule):
        raise _unknown(name, type(network).__name__)
    reader = _LayerReader(network, name)
    for node in network.graph.nodes:
        reader.read(node)
    if not reader.ended:
        raise _unknown(name, "an end without the mean over positions")
    return tuple(reader.steps)


MEAN = "mean"  # the value after the last step
Value = FeatureStep | int | str  # a step that is open, the number of one that is done, MEAN


class _LayerReader:
    """Follows a graph; a step is open from its convolution to its ReLU."""

    def __init__(self, network: fx.GraphModule, name: str) -> None:
        self.network, self.name = network, name
        self.values: dict[fx.Node, Value] = {}
        self.steps: list[FeatureStep] = []
        self.ended = False

    def read(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.values[node] = IMAGE
        elif node.op == "output":
            self.ended = self.values[node.all_input_nodes[0]] == MEAN
        elif node.op == "call_function" and node.target is operator.add:
            self.values[node] = self._sum(*(self.values[each] for each in node.all_input_nodes))
        else:
            layer = self.network.get_submodule(str(node.target))
            value = self._layer(layer, self.values[node.all_input_nodes[0]], node)
            if value is None:
                raise _unknown(self.name, type(layer).__name__)
            self.values[node] = value

    def _sum(self, *values: Value) -> Value:
        opened = [each for each in values if isinstance(each, FeatureStep)]
        done = [each for each in values if isinstance(each, int) and each != IMAGE]
        if len(opened) != 1 or len(done) != 1 or opened[0].added is not None:
            raise _unknown(self.name, "a sum of other things than a convolution and a step before")
        return replace(opened[0], added=done[0])

    def _layer(self, layer: nn.Module, value: Value, node: fx.Node) -> Value | None:
        if isinstance(layer, nn.Flatten | nn.Identity | nn.Dropout):
            return value if value == MEAN or not isinstance(layer, nn.Flatten) else None
        if isinstance(layer, nn.AdaptiveAvgPool2d):
            fits = layer.output_size in (1, (1, 1)) and value == len(self.steps) - 1
            return MEAN if fits and value != IMAGE else None
        if isinstance(layer, nn.Conv2d) and isinstance(value, int):
            return self._convolution(layer, value)
        if isinstance(layer, nn.ReLU) and isinstance(value, FeatureStep):
            self.steps.append(value)
            return len(self.steps) - 1
        if isinstance(layer, nn.MaxPool2d):
            return self._pool(layer, value, node)
        return None

    def _pool(self, layer: nn.MaxPool2d, value: Value, node: fx.Node) -> Value | None:
        side = _one(layer.kernel_size)
        if side is None or (_one(layer.stride), _one(layer.padding)) != (side, 0):
            return None
        if isinstance(value, int) and 0 <= value == len(self.steps) - 1:
            if len(node.all_input_nodes[0].users) > 1:
                return None
            value = self.steps.pop()  # the largest of what is not negative: the order is the same
            pooled = self._pool(layer, value, node)
            if isinstance(pooled, FeatureStep):
                self.steps.append(pooled)
                return len(self.steps) - 1
            return None
        if not isinstance(value, FeatureStep) or value.pool > 1 or value.added is not None:
            return None
        return replace(value, pool=side)

    def _convolution(self, layer: nn.Conv2d, source: int) -> FeatureStep | None:
        stride, padding = _one(layer.stride), _one(layer.padding)
        plain = layer.groups == 1 and _one(layer.dilation) == 1 and layer.padding_mode == "zeros"
        if not plain or stride is None or padding is None or _one(layer.kernel_size) is None:
            return None
        weight = layer.weight.detach().double()
        bias = torch.zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        return FeatureStep(weight, bias.double(), stride, padding, source)


def _one(size: Any) -> int | None:
    """The number of a size that is the same in both directions."""
    sides = set(size) if isinstance(size, tuple) else {size}
    only = next(iter(sides))
    return only if len(sides) == 1 and isinstance(only, int) else None


def _unknown(name: str, found: str) -> RivalsError:
    return RivalsError(
        f"The ancestor '{name}' cannot be written in teachable C: it has {found}, and known are "
        "convolutions with ReLU, pooling, sums and the mean over positions; use tiny or small."
    )
