"""Other shapes of a ticket, for the question `shape`: networks as functions of a kind.

Each is as a user's own network would be (docs/your-own-network.md) and is named `shapes:pairs` in
questions.yaml.
"""

from __future__ import annotations

from torch import nn

from rivals.nn.activations import Activation, Activations, GlobalPool, MaxPool
from rivals.nn.builders import LayerBuilder
from rivals.nn.resnet import Residual


def pairs(kind: LayerBuilder, widths: tuple[int, ...]) -> nn.Module:
    """Two 3×3 convolutions for each width, halving the picture in between; the mean at the end."""
    parts: list[nn.Module] = []
    for number, width in enumerate(widths):
        if number:
            parts += [MaxPool(2), Activation(kind.unit)]
        last = number == len(widths) - 1
        parts += [kind.conv(width, 3, padding=1), kind.conv(width, 3, padding=1, activate=last)]
    return nn.Sequential(*parts, GlobalPool())


def pointwise(kind: LayerBuilder, widths: tuple[int, ...]) -> nn.Module:
    """A 3×3 convolution, halving, and a 1×1 to half of its width, for each; the last one whole."""
    *halving, last = widths
    parts: list[nn.Module] = []
    for width in halving:
        parts += [
            kind.conv(width, 3, padding=1, activate=False),
            MaxPool(2),
            Activation(kind.unit),
            kind.conv(width // 2, 1),
        ]
    return nn.Sequential(*parts, kind.conv(last, 3, padding=1), GlobalPool())


def residual(kind: LayerBuilder, widths: tuple[int, ...]) -> nn.Module:
    """One residual block for each width, where the small ResNet has two."""
    stream = kind.stream(widths[0])
    parts: list[nn.Module] = [kind.conv(widths[0], 3, 1, 1, stream=stream)]
    for stage, width in enumerate(widths):
        if stage:
            stream = kind.stream(width)
        parts.append(Residual(kind, width, 2 if stage else 1, stream, project=stage > 0))
    return nn.Sequential(*parts, GlobalPool())


class Untied(nn.Module):
    """A residual block whose layers compete each on their own; sums are taken block by block."""

    def __init__(self, kind: LayerBuilder, width: int, stride: int, project: bool) -> None:
        super().__init__()
        self.first = kind.conv(width, 3, stride, 1)
        self.second = kind.conv(width, 3, 1, 1, activate=False)
        self.shortcut = kind.conv(width, 1, stride, activate=False) if project else None
        self.activation = Activation(kind.unit)

    def forward(self, flow: Activations) -> Activations:
        kept = flow if self.shortcut is None else self.shortcut(flow)
        added = self.second(self.first(flow))
        return self.activation(added.map(lambda values: kept.values + values))


def untied(kind: LayerBuilder, widths: tuple[int, ...]) -> nn.Module:
    """As `residual`, but nothing ties the winners of a stage."""
    parts: list[nn.Module] = [kind.conv(widths[0], 3, 1, 1)]
    for stage, width in enumerate(widths):
        parts.append(Untied(kind, width, 2 if stage else 1, project=stage > 0))
    return nn.Sequential(*parts, GlobalPool())


class Leaky(nn.Module):
    """A leaky ReLU with a slope of a quarter below 0, of what tickets may hold: x + 3 · relu(x).

    That is four times as large, which the norm of the next layer takes out again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.relu = Activation("relu")

    def forward(self, flow: Activations) -> Activations:
        above = self.relu(flow)
        return flow + above + above + above


def leaky(kind: LayerBuilder, widths: tuple[int, ...]) -> nn.Module:
    """The default's four convolutions with leaky units."""
    *halving, last = widths
    parts: list[nn.Module] = []
    for width in halving:
        parts += [kind.conv(width, 3, padding=1, activate=False), MaxPool(2), Leaky()]
    end = kind.conv(last, 3, padding=1, activate=False)
    return nn.Sequential(*parts, end, Leaky(), GlobalPool())
