"""Pictures to calibrate with, where nobody gave any: discs that cover each other, from a seed.

Such "dead leaves" have much in common with photographs (edges at all scales, even areas, shades and
colours), and the ranges of activations that they cause are about those of photographs.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LEAVES = 120  # in a picture
LARGEST = 0.6  # radius, as a share of the side
CONTRAST, SHADE = 40.0, 60.0  # of colours in a leaf's own grey, and from one end of it to the other


@cache  # half of an export, and the same for all of one size
def dead_leaves(count: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    """(count, *shape) uint8, the same on every machine. Only to be read."""
    channels, height, width = shape
    chance = np.random.default_rng(seed)
    pictures = np.empty((count, *shape), np.uint8)
    for picture in pictures:
        fine = np.empty((2 * height, 2 * width, channels))  # twice as fine: edges are soft
        fine[:] = chance.integers(0, 256, channels)
        for radius in 2 * LARGEST * min(height, width) * chance.power(0.35, LEAVES):
            _leaf(fine, max(2.0, radius), chance)
        soft = fine.reshape(height, 2, width, 2, channels).mean((1, 3))
        picture[:] = soft.transpose(2, 0, 1).round()
    return torch.from_numpy(pictures)


def _leaf(picture: NDArray[np.float64], radius: float, chance: np.random.Generator) -> None:
    """Cover a part of a picture with a shaded disc."""
    y, x = chance.random(2) * picture.shape[:2]
    top, left = (max(0, int(middle - radius)) for middle in (y, x))
    part = picture[top : int(y + radius) + 1, left : int(x + radius) + 1]
    down = np.arange(top, top + part.shape[0])[:, None] - y
    across = np.arange(left, left + part.shape[1]) - x
    inside = down**2 + across**2 < radius * radius
    colour = chance.normal(chance.integers(0, 256), CONTRAST, picture.shape[2])
    angle, strength = 2 * np.pi * chance.random(), SHADE * chance.random() / radius
    slope = (across * np.cos(angle) + down * np.sin(angle))[inside]
    part[inside] = np.clip(colour + strength * slope[:, None], 0, 255)
