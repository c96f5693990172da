"""The five-layer AlexNet of GPM and of the paper: 64-128-256 maps, two dense layers of 2048.

`alexnet-table` has the widths of the appendix's table, 16-16-32-128-128 (32-32-32-128-128 with 32
units); that table lists four convolutions where the text has three, so one 16-wide row is left out.
"""

from __future__ import annotations

from torch import nn

from rivals.nn.activations import Activation, Flatten, MaxPool
from rivals.nn.builders import LayerBuilder
from rivals.nn.network_plan import networks

TABLE = {32: (32, 32, 32, 128, 128)}


@networks.register("alexnet")
def alexnet(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    first, second, third, fourth, fifth = widths or (64, 128, 256, 2048, 2048)
    return nn.Sequential(
        build.conv(first, 4, activate=False),
        MaxPool(2),
        Activation(build.activation),
        build.conv(second, 3, activate=False),
        MaxPool(2),
        Activation(build.activation),
        build.conv(third, 2, activate=False),
        MaxPool(2),
        Activation(build.activation),
        Flatten(),
        build.linear(fourth),
        build.linear(fifth),
    )


@networks.register("alexnet-table")
def alexnet_table(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    return alexnet(build, widths or TABLE.get(build.units, (16, 16, 32, 128, 128)))
