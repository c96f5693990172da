"""From the bytes of a picture to what a network reads, with torch or without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # devices prepare pictures without it
    from torch import Tensor


@dataclass(frozen=True)
class Preprocessing:
    """From stored pixels to network input, channel by channel: (pixels / scale − mean) / std."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def factors(self) -> list[float]:
        return [1 / (self.scale * s) for s in self.std]

    @property
    def offsets(self) -> list[float]:
        return [m / s for m, s in zip(self.mean, self.std, strict=True)]

    def __call__(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) bytes → the same shape in float32."""
        import torch

        shape, device = (1, -1, 1, 1), images.device
        factor = torch.tensor(self.factors, device=device).view(shape)
        offset = torch.tensor(self.offsets, device=device).view(shape)
        return images.to(torch.float32, copy=True).mul_(factor).sub_(offset)

    def arrays(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """The same of arrays, without torch."""
        shape = (1, -1, 1, 1)
        factor, offset = (
            np.array(each, np.float32).reshape(shape) for each in (self.factors, self.offsets)
        )
        return images.astype(np.float32) * factor - offset


def centred(channels: int, scale: float = 255.0) -> Preprocessing:
    """From 0 … scale to −2 … 2, whatever the data are: how networks see pictures of all kinds."""
    return Preprocessing(scale, (0.5,) * channels, (0.25,) * channels)


def as_ancestor(mean: Sequence[float], std: Sequence[float], channels: int) -> Preprocessing:
    """How an ancestor says that bytes are prepared, by channel, for so many channels.

    Of colours that become grey the means are taken, which is not exact where they differ.
    """
    rows = [tuple(each) for each in (mean, std)]
    if channels != len(mean):
        rows = [(sum(each) / len(each),) * channels for each in rows]
    return Preprocessing(255.0, *rows)
