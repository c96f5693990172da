"""The networks that ours are compared with: ordinary layers of torch, trained in the ordinary way.

`folded` leaves the norms out and gives every layer a bias, as a ticket has it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.experiment.bench.bench_sizes import Widths
from rivals.nn.optimisers import SGD

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Strided(nn.Module):
    """A 1×1 convolution on every second position; with a stride, torch 2.13 may crash in it."""

    def __init__(self, columns: int, rows: int, bias: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(columns, rows, 1, bias=bias)

    def forward(self, values: Tensor) -> Tensor:
        out: Tensor = self.conv(values[:, :, ::2, ::2])
        return out


class PlainResidual(nn.Module):
    """Two 3×3 convolutions beside an identity or a shortcut."""

    def __init__(self, columns: int, rows: int, stride: int, folded: bool) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(columns, rows, 3, stride, 1, bias=folded),
            *norm(rows, folded),
            nn.ReLU(),
            nn.Conv2d(rows, rows, 3, 1, 1, bias=folded),
            *norm(rows, folded),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1:
            self.shortcut = nn.Sequential(Strided(columns, rows, folded), *norm(rows, folded))

    def forward(self, values: Tensor) -> Tensor:
        return F.relu(self.shortcut(values) + self.inner(values))


def norm(width: int, folded: bool, flat: bool = False) -> list[nn.Module]:
    if folded:
        return []
    return [nn.BatchNorm1d(width) if flat else nn.BatchNorm2d(width)]


def alexnet(widths: Widths, side: int, classes: int, folded: bool = False) -> nn.Module:
    """Three convolutions, each with a norm, ReLU and max-pooling; two dense layers; a head."""
    layers: list[nn.Module] = []
    columns = 3
    for width, kernel in zip(widths[:3], (4, 3, 2), strict=True):
        layers += [nn.Conv2d(columns, width, kernel, bias=folded), *norm(width, folded)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        columns, side = width, (side - kernel + 1) // 2
    layers.append(nn.Flatten())
    columns *= side * side
    for width in widths[3:]:
        layers += [nn.Linear(columns, width, bias=folded), *norm(width, folded, flat=True)]
        layers.append(nn.ReLU())
        columns = width
    return nn.Sequential(*layers, nn.Linear(columns, classes))


def resnet18(widths: Widths, side: int, classes: int, folded: bool = False) -> nn.Module:
    """A stem, four stages of two residual blocks, a mean over positions, a dense layer, a head."""
    *stages, dense = widths
    layers: list[nn.Module] = [nn.Conv2d(3, stages[0], 3, 1, 1, bias=folded)]
    layers += [*norm(stages[0], folded), nn.ReLU()]
    columns = stages[0]
    for number, width in enumerate(stages):
        layers.append(PlainResidual(columns, width, 2 if number else 1, folded))
        layers.append(PlainResidual(width, width, 1, folded))
        columns = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(columns, dense, bias=folded)]
    layers += [*norm(dense, folded, flat=True), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(dense, classes))


NETWORKS = {"alexnet": alexnet, "resnet18": resnet18, "wide": resnet18}


class PlainTraining:
    """Steps of SGD with momentum on one batch, in one memory layout."""

    def __init__(self, network: nn.Module, images: Tensor, labels: Tensor, layout: str) -> None:
        self.network = network.to(memory_format=LAYOUTS[layout])  # type: ignore[call-overload]
        self.images = images.contiguous(memory_format=LAYOUTS[layout])
        self.labels = labels
        self.optimiser = SGD(self.network.parameters(), lr=0.01, momentum=0.9, fused=True)

    def step(self) -> float:
        self.optimiser.zero_grad()
        loss = F.cross_entropy(self.network(self.images), self.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return loss.item()


class PlainForward:
    """A forward pass at inference, in one memory layout."""

    def __init__(self, network: nn.Module, images: Tensor, layout: str) -> None:
        self.network = network.eval().to(memory_format=LAYOUTS[layout])  # type: ignore[call-overload]
        self.images = images.contiguous(memory_format=LAYOUTS[layout])

    @torch.no_grad()
    def __call__(self) -> Tensor:
        out: Tensor = self.network(self.images)
        return out
