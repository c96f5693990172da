"""Layers of a plain network that torch has only as functions: resizing, powers, squares."""

from __future__ import annotations

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
