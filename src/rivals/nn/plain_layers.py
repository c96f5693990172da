"""Layers of a plain network that torch has only as functions: resizing, powers, gradients."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Resize(nn.Module):
    """Pictures (n, channels, height, width) → (n, channels, side, side), bilinear.

    >>> import torch
    >>> Resize(48)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 3, 48, 48])
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, images: Tensor) -> Tensor:
        smaller = max(images.shape[-2:]) > self.side  # then all pixels count, not only some
        return F.interpolate(
            images, (self.side,) * 2, mode="bilinear", align_corners=False, antialias=smaller
        )

    def extra_repr(self) -> str:
        return f"side={self.side}"


class Square(nn.Module):
    """Each value times itself.

    >>> import torch
    >>> Square()(torch.tensor([-3.0, 2.0]))
    tensor([9., 4.])
    """

    def forward(self, values: Tensor) -> Tensor:
        return values.square()


class Power(nn.Module):
    """Each value's size to the power of `exponent`, with its sign: Tukey's transform.

    >>> import torch
    >>> Power(0.5)(torch.tensor([-9.0, 4.0]))
    tensor([-3.,  2.])
    """

    def __init__(self, exponent: float) -> None:
        super().__init__()
        self.exponent = exponent

    def forward(self, values: Tensor) -> Tensor:
        return values.sign() * values.abs().pow(self.exponent)

    def extra_repr(self) -> str:
        return f"exponent={self.exponent:g}"


class Gradients(nn.Module):
    """Edges by place and direction: pictures (n, channels, height, width) → (n, 8, rows, columns).

    The brightness around a pixel grows in some direction, up to its sign. Eight directions share
    the strength of this gradient; what a pixel gives is summed over cells that overlap by half, and
    a cell is divided by the strength around it, so that contrast and light do not count. These are
    histograms of oriented gradients (Dalal and Triggs, 2005) with soft bins.

    Args:
        cell: Pixels from one cell to the next.

    >>> import torch
    >>> upright = torch.zeros(1, 3, 48, 48)
    >>> upright[..., 24:] = 1
    >>> found = Gradients(6)(upright)
    >>> tuple(found.shape), int(found.sum((0, 2, 3)).argmax())
    ((1, 8, 8, 8), 0)
    """

    DIRECTIONS = 8
    LEAST = 3  # pixels a side that a gradient takes
    EVEN = 1e-3  # squared strength of what counts as even
    NOTHING = 4e-8  # eight squares without a direction; the ONNX exporter takes 1e-8 for zero
    filters: Tensor

    def __init__(self, cell: int) -> None:
        super().__init__()
        self.cell = cell
        across = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
        angles = [math.pi * number / self.DIRECTIONS for number in range(self.DIRECTIONS)]
        filters = [math.cos(angle) * across + math.sin(angle) * across.T for angle in angles]
        self.register_buffer("filters", torch.stack(filters).unsqueeze(1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        grey = images.mean(1, keepdim=True)
        square = F.conv2d(grey, self.filters).square()
        # Over directions evenly spread, squares of cosines add up to half their number.
        strength = (square.sum(1, keepdim=True) + self.NOTHING) * (2 / self.DIRECTIONS)
        near = square / strength  # squared cosine
        shares = square.sqrt() * near * near * near  # in this order few are held at a time
        cells = F.avg_pool2d(shares, 2 * self.cell, self.cell, self.cell // 2 + 1)
        around = F.avg_pool2d(cells.square().sum(1, keepdim=True), 3, 1, 1)
        found: Tensor = cells / (around + self.EVEN).sqrt()
        return found

    def multiplications(self, height: int, width: int) -> int:
        """MACs of one picture in the filters."""
        return self.filters.numel() * self._pixels(height, width)

    def held(self, height: int, width: int) -> int:
        """Values of one picture that are held at a time: squares, near and strength."""
        return (2 * self.DIRECTIONS + 1) * self._pixels(height, width)

    def _pixels(self, height: int, width: int) -> int:
        return (height - self.LEAST + 1) * (width - self.LEAST + 1)

    def extra_repr(self) -> str:
        return f"cell={self.cell}"
