"""The cost of training with sparse weights, as RigL counts: zeros cost nothing.

For one image  F = Σ d_w f  (forward)  + Σ without the first d_w f  (to inputs)  + Σ d_g f  (to
weights), with f the FLOPs of a layer's forward pass, d_w the density of its weight and d_g that of
its gradient. Ordinary machines save nothing of this, so results report both numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rivals.learn.state import StatePart
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.head import Head


class SparseAccount:
    """FLOPs of the present task if zeros are multiplied, and their share by density."""

    def __init__(self) -> None:
        self.dense_flops = 0.0
        self.layers: list[float] = []  # FLOPs of each layer for one image, once they are needed

    def step_share(
        self, network: DenseNetwork, weights: Sequence[float], gradients: Sequence[float]
    ) -> float:
        """The share of a dense step that is charged, at these densities of the layers.

        No densities: nothing is pruned yet.
        """
        if not weights:
            return 1.0
        self.layers = self.layers or layer_flops(network)
        return step_share(self.layers, head_flops(network), weights, gradients)

    def charge(self, before: float, after: float, share: float) -> float:
        """The FLOPs of a task after a step that would raise them from `before` to `after`."""
        dense = after - before
        self.dense_flops += dense
        return before + dense * share

    def state(self) -> StatePart:
        return StatePart(facts={"dense_flops": self.dense_flops})

    def load(self, part: StatePart) -> None:
        self.dense_flops = part.facts["dense_flops"]


@torch.no_grad()
def layer_flops(network: DenseNetwork) -> list[float]:
    """FLOPs of each layer's forward pass on one image: 2 · weights · positions."""
    positions: list[int] = []

    def note(layer: nn.Module, given: Any, flow: Any) -> None:
        positions.append(flow.values[0, 0].numel())

    layers = network.layers()
    hooks = [layer.register_forward_hook(note) for layer in layers]
    task = next(iter(network.heads))
    network.learning(False).flow(torch.zeros(1, *network.input_shape, device=network.device), task)
    for hook in hooks:
        hook.remove()
    return [2.0 * w.numel() * p for w, p in zip(network.weights(), positions, strict=True)]


def head_flops(network: DenseNetwork) -> float:
    """FLOPs of the forward pass of all heads, which are never sparse."""
    parts = [part for task in network.heads for part in network.own(task).values()]
    return 2.0 * network.features * sum(len(p.bias) for p in parts if isinstance(p, Head))


def step_share(
    layers: Sequence[float], heads: float, weights: Sequence[float], gradients: Sequence[float]
) -> float:
    """The cost of a step at the densities `weights` and `gradients` as a share of the dense one."""
    dense = 3 * sum(layers) - layers[0] + 3 * heads
    sparse = 3 * heads - weights[0] * layers[0]
    for flops, weight, gradient in zip(layers, weights, gradients, strict=True):
        sparse += flops * (2 * weight + gradient)
    return sparse / dense
