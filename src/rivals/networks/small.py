"""A multi-layer perceptron, and a small convolutional network for tests and small pictures."""

from __future__ import annotations

from torch import nn

from rivals.layers import Activation, Flatten, GlobalPool, MaxPool
from rivals.networks.kinds import Kind
from rivals.networks.plan import networks


@networks.register("mlp")
def mlp(kind: Kind, widths: tuple[int, ...] = ()) -> nn.Module:
    """Two dense layers of 800, so that 8 units give the 100-100 of the PMNIST papers."""
    return nn.Sequential(Flatten(), *(kind.linear(width) for width in widths or (800, 800)))


@networks.register("conv-small")
def conv_small(kind: Kind, widths: tuple[int, ...] = ()) -> nn.Module:
    """Three 3×3 convolutions, 64-128-256, and the mean over what is left of the picture."""
    first, second, third = widths or (64, 128, 256)
    return nn.Sequential(
        kind.conv(first, 3, padding=1, activate=False),
        MaxPool(2),
        Activation(kind.unit),
        kind.conv(second, 3, padding=1, activate=False),
        MaxPool(2),
        Activation(kind.unit),
        kind.conv(third, 3, padding=1),
        GlobalPool(),
    )
