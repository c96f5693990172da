"""LeNet as in the paper's appendix: two convolutions and one dense layer, 16-48-400.

With 32 units in a block the widths become 32-64-416, the nearest that 32 divides.
"""

from __future__ import annotations

from torch import nn

from rivals.nn.activations import Activation, Flatten, MaxPool
from rivals.nn.builders import LayerBuilder
from rivals.nn.network_plan import networks

WIDTHS = {32: (32, 64, 416)}


@networks.register("lenet")
def lenet(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    first, second, dense = widths or WIDTHS.get(build.units, (16, 48, 400))
    return nn.Sequential(
        build.conv(first, 5, padding=2, activate=False),
        MaxPool(2),
        Activation(build.activation),
        build.conv(second, 5, padding=2, activate=False),
        MaxPool(2),
        Activation(build.activation),
        Flatten(),
        build.linear(dense),
    )
