"""The five-layer AlexNet of GPM and of the paper: 64-128-256 maps, two dense layers of 2048.

`alexnet-table` is that of the appendix's table: four convolutions where the text has three, and
16-16-16-32-128-128 maps and units (32-32-32-32-128-128 with 32 rivals in a block). The paper gives
three kernel sizes. The fourth kernel is as the third, without pooling: after three poolings a
picture of 32×32 has 2×2 positions left, and the fourth convolution makes one of them.
"""

from __future__ import annotations

from torch import nn

from rivals.nn.activations import Activation, Flatten, MaxPool
from rivals.nn.builders import LayerBuilder
from rivals.nn.network_plan import networks

TABLE = {32: (32, 32, 32, 32, 128, 128)}


@networks.register("alexnet")
def alexnet(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    first, second, third, fourth, fifth = widths or (64, 128, 256, 2048, 2048)
    return nn.Sequential(
        *pooled(build, (first, second, third)),
        Flatten(),
        build.linear(fourth),
        build.linear(fifth),
    )


def pooled(build: LayerBuilder, widths: tuple[int, int, int]) -> list[nn.Module]:
    """The three convolutions of the text, each with max-pooling."""
    layers: list[nn.Module] = []
    for width, kernel in zip(widths, (4, 3, 2), strict=True):
        layers.append(build.conv(width, kernel, activate=False))
        layers += [MaxPool(2), Activation(build.activation)]
    return layers


@networks.register("alexnet-table")
def alexnet_table(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    widths = widths or TABLE.get(build.units, (16, 16, 16, 32, 128, 128))
    first, second, third, fourth, fifth, sixth = widths
    return nn.Sequential(
        *pooled(build, (first, second, third)),
        build.conv(fourth, 2),
        Flatten(),
        build.linear(fifth),
        build.linear(sixth),
    )
