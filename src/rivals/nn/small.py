"""A multi-layer perceptron, and a small convolutional network for tests and small pictures."""

from __future__ import annotations

from torch import nn

from rivals.nn.activations import Activation, Flatten, GlobalPool, MaxPool
from rivals.nn.builders import LayerBuilder
from rivals.nn.network_plan import networks


@networks.register("mlp")
def mlp(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    """Two dense layers of 800, so that 8 units give the 100-100 of the PMNIST papers."""
    return nn.Sequential(Flatten(), *(build.linear(width) for width in widths or (800, 800)))


@networks.register("conv-small")
def conv_small(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    """A 3×3 convolution for each width, 64-128-256, halving the picture, and the mean at the end.

    Of tickets with 0.1 M weights at most, those of 128-256-512-832 and 160-256-384-512-704 are the
    best that were found, the latter after fewer epochs (docs/research.md).
    """
    *halving, last = widths or (64, 128, 256)
    parts: list[nn.Module] = []
    for width in halving:
        parts += [
            build.conv(width, 3, padding=1, activate=False),
            MaxPool(2),
            Activation(build.activation),
        ]
    return nn.Sequential(*parts, build.conv(last, 3, padding=1), GlobalPool())
