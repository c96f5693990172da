"""Residual networks whose stages share one competition.

Everything that is written to a stage's stream (the stem or the shortcut, and the second convolution
of every block) belongs to the same rivals, so a unit of the stream is the same unit all along the
stage: the identity path lands where it should and is never gated again. The first convolution of a
block competes on its own. ReLU follows the addition.

`resnet18` has the text's widths, 64-128-256-512 and a dense layer of 512; `resnet18-table` those of
the appendix's table; `resnet-small` is 48-96-192-384, whose ticket at 8 units has 0.1 M weights.
`conv-residual` is the network of the shipped ancestors: it halves the picture early, by pooling, so
that most of its weights see few positions.
"""

from __future__ import annotations

from torch import nn

from rivals.nn.activations import Activation, Activations, GlobalPool, MaxPool
from rivals.nn.blocks import RivalBlocks
from rivals.nn.builders import LayerBuilder
from rivals.nn.network_plan import networks

TABLE = {32: (32, 32, 32, 32, 32)}


class Residual(nn.Module):
    """Two convolutions and a shortcut: relu(shortcut + second(first(x)))."""

    def __init__(
        self,
        build: LayerBuilder,
        width: int,
        stride: int,
        stream: RivalBlocks | None,
        project: bool,
        inner: int = 0,
    ) -> None:
        super().__init__()
        self.first = build.conv(inner or width, 3, stride, 1)
        self.second = build.conv(width, 3, 1, 1, stream=stream, activate=False)
        self.shortcut = (
            build.conv(width, 1, stride, stream=stream, activate=False) if project else None
        )
        self.activation = Activation(build.activation)

    def forward(self, flow: Activations) -> Activations:
        kept = flow if self.shortcut is None else self.shortcut(flow)
        out: Activations = self.activation(kept + self.second(self.first(flow)))
        return out


def residual(build: LayerBuilder, widths: tuple[int, ...], dense: int = 0) -> nn.Module:
    """A stem, a stage of two residual blocks per width, the mean over positions, a dense layer."""
    stream = build.stream(widths[0])
    parts: list[nn.Module] = [build.conv(widths[0], 3, 1, 1, stream=stream)]
    for stage, width in enumerate(widths):
        if stage:
            stream = build.stream(width)
        stride = 1 if stage == 0 else 2
        parts += [
            Residual(build, width, stride, stream, project=stage > 0),
            Residual(build, width, 1, stream, project=False),
        ]
    parts.append(GlobalPool())
    if dense:
        parts.append(build.linear(dense))
    return nn.Sequential(*parts)


@networks.register("resnet18")
def resnet18(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    *stages, dense = widths or (64, 128, 256, 512, 512)
    return residual(build, tuple(stages), dense)


@networks.register("resnet18-table")
def resnet18_table(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    return resnet18(build, widths or TABLE.get(build.units, (16, 16, 32, 32, 32)))


@networks.register("resnet-small")
def resnet_small(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    return residual(build, widths or (48, 96, 192, 384))


@networks.register("conv-residual")
def conv_residual(build: LayerBuilder, widths: tuple[int, ...] = ()) -> nn.Module:
    """A convolution, stages of residual blocks, a 1×1 convolution, and the mean over positions.

    Widths are those of the first convolution, of each block two (its stage's and its own), and of
    the last convolution: (first, stage, inner, stage, inner, …, last). A block of the same width as
    the one before belongs to the same stage. All stages but the last halve the picture.
    """
    first, *pairs, last = widths or (64, 96, 96, 128, 96, 256)
    if len(pairs) < 2 or len(pairs) % 2:
        raise ValueError("a first width, two for each block, and a last one")
    stages = list(zip(pairs[::2], pairs[1::2], strict=True))
    relu = build.activation
    parts = [build.conv(first, 3, 1, 1, activate=False), MaxPool(2), Activation(relu)]
    stream, present = None, 0
    for width, inner in stages:
        if width != present:
            stream, present = build.stream(width), width
            parts.append(build.conv(width, 3, 1, 1, stream=stream, activate=False))
            parts += [MaxPool(2)] if width != stages[-1][0] else []
            parts.append(Activation(relu))
        parts.append(Residual(build, width, 1, stream, project=False, inner=inner))
    return nn.Sequential(*parts, build.conv(last, 1), GlobalPool())
