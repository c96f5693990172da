"""What a step costs if weights and gradients that are zero cost nothing (as RigL counts).

For one image  F = Σ d_w f  (forward)  + Σ without the first d_w f  (to inputs)  + Σ d_g f  (to
weights), with f the FLOPs of a layer's forward pass, d_w the density of its weight and d_g that of
its gradient. Ordinary machines save nothing of the sort; results say both numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rivals.nn.dense_network import DenseNetwork


@torch.no_grad()
def layer_flops(network: DenseNetwork) -> list[float]:
    """FLOPs of each layer's forward pass on one image: 2 · weights · positions."""
    positions: list[int] = []

    def note(layer: nn.Module, given: Any, flow: Any) -> None:
        positions.append(flow.values[0, 0].numel())

    layers = network.layers()
    hooks = [layer.register_forward_hook(note) for layer in layers]
    task = next(iter(network.heads))
    network.learning(False).flow(torch.zeros(1, *network.input_shape), task)
    for hook in hooks:
        hook.remove()
    return [2.0 * w.numel() * p for w, p in zip(network.weights(), positions, strict=True)]


def head_flops(network: DenseNetwork) -> float:
    """Of the forward pass of all heads, which are never sparse."""
    return 2.0 * network.features * sum(len(head.bias) for head in network.heads.values())


def step_share(
    layers: Sequence[float], heads: float, weights: Sequence[float], gradients: Sequence[float]
) -> float:
    """The cost of a step at the densities `weights` and `gradients` as a share of the dense one."""
    dense = 3 * sum(layers) - layers[0] + 3 * heads
    sparse = 3 * heads - weights[0] * layers[0]
    for flops, weight, gradient in zip(layers, weights, gradients, strict=True):
        sparse += flops * (2 * weight + gradient)
    return sparse / dense
