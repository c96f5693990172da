"""What the heads of direct tasks read of a prepared picture, in numpy: small pixels, or its edges.

The layers with the same names in torch say why: rivals/nn/activations.py and plain_layers.py.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
SIDE = 8  # of a picture made small, and of a grid of cells
DIRECTIONS = 8
LEAST = 3  # pixels a side that a gradient takes
EVEN = 1e-3  # squared strength of what counts as even
NOTHING = 4e-8  # eight squares without a direction
IMAGES = 8  # computed at once


def cell_of(images: NDArray[Any]) -> int:
    return max(1, round(min(int(side) for side in images.shape[2:]) / SIDE))


def mean_pool(values: Floats, size: int, stride: int, padding: int = 0) -> Floats:
    """Means of squares, zeros around the picture counted: (…, height, width) → (…, rows, columns).

    Sums along one side and then along the other: squares that overlap would be many to hold.
    """
    pads = [(0, 0)] * (values.ndim - 2) + [(padding, padding)] * 2
    values = np.pad(values, pads) if padding else values
    for _ in range(2):  # rows, then columns, which are the rows of what is turned
        count = (values.shape[-2] - size) // stride + 1
        rows = [values[..., at * stride : at * stride + size, :].sum(-2) for at in range(count)]
        values = np.stack(rows, -1)  # turned: columns, rows
    means: Floats = values / np.float32(size * size)
    return means


def small_pixels(images: Floats) -> Floats:
    """About 8 × 8 values of each channel, flat: (n, d)."""
    cell = cell_of(images)
    return mean_pool(images, cell, cell).reshape(len(images), -1)


def edge_grid(images: Floats) -> Floats:
    """Edges by place and direction, about 8 directions in 8 × 8 cells, flat: (n, d)."""
    starts = range(0, len(images), IMAGES)
    return np.concatenate([_edges(images[at : at + IMAGES]) for at in starts])


def _edges(images: Floats) -> Floats:
    cell, grey = cell_of(images), images.mean(1)
    # Sobel's filters: smooth one way, differ the other way.
    down = grey[:, 2:] - grey[:, :-2]
    across = grey[..., 2:] - grey[..., :-2]
    upright = (across[:, :-2] + 2 * across[:, 1:-1] + across[:, 2:]) / 8
    level = (down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:]) / 8
    angles = np.arange(DIRECTIONS) * math.pi / DIRECTIONS
    cos, sin = (f(angles).astype(np.float32).reshape(1, -1, 1, 1) for f in (np.cos, np.sin))
    square = np.square(cos * upright[:, None] + sin * level[:, None])
    near = square / ((square.sum(1, keepdims=True) + np.float32(NOTHING)) * (2 / DIRECTIONS))
    shares = np.sqrt(square) * near * near * near
    cells = mean_pool(shares, 2 * cell, cell, cell // 2 + 1)
    around = mean_pool(np.square(cells).sum(1, keepdims=True), 3, 1, 1)
    found: Floats = cells / np.sqrt(around + np.float32(EVEN))
    return found.reshape(len(images), -1).astype(np.float32)


READERS = {"pixels": small_pixels, "edges": edge_grid}


@cache
def direct_widths(shape: tuple[int, int, int]) -> dict[int, str]:
    """What a head reads, by its width."""
    blank = np.zeros((1, *shape), np.float32)
    return {
        read(blank).shape[1]: name
        for name, read in READERS.items()
        if name != "edges" or min(shape[1:]) >= LEAST
    }
