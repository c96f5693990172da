"""The network of an ancestor in numpy: pictures in, features out, nothing to train.

    picture ─► conv ─► pool ─► stages of residual blocks ─► 1×1 conv ─► mean over positions

It is `conv-residual` of rivals/nn/resnet.py, which says what its widths mean. A convolution is one
product of matrices, and its norm is folded into it. Values lie as (channels, n, height, width), so
that the product is one for all pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.ancestors.shipped_file import LUMINANCE

Floats = NDArray[np.float32]
NETWORK = "conv-residual"
NORM = ("scale", "shift", "mean", "var")
EPSILON = 1e-5  # of the norms
TAPS = 9  # weights of an edge of a 3×3 convolution
IMAGES = 8  # computed at once: more take more memory and no less time


@dataclass(frozen=True)
class Convolution:
    """A convolution with its norm folded in."""

    weight: Floats  # (rows, columns · taps)
    offset: Floats  # (rows,)

    @classmethod
    def of(cls, weight: NDArray[Any], norm: Mapping[str, NDArray[Any]]) -> Convolution:
        """Of weights (rows, columns, taps) and the norm of the rows."""
        scale, shift, mean, var = (norm[name].astype(np.float32) for name in NORM)
        factor = scale / np.sqrt(var + np.float32(EPSILON))
        flat = weight.astype(np.float32).reshape(len(weight), -1)
        return cls(flat * factor[:, None], shift - mean * factor)

    def __call__(self, values: Floats) -> Floats:
        """(columns, n, height, width) → (rows, n, height, width)."""
        columns, *rest = values.shape
        taken = values if self.weight.shape[1] == columns else neighbours(values)
        found: Floats = self.weight @ taken.reshape(self.weight.shape[1], -1)
        found += self.offset[:, None]
        return found.reshape(-1, *rest)


def neighbours(values: Floats) -> Floats:
    """Every value with the eight around it: (columns, 9, n, height, width)."""
    columns, n, height, width = values.shape
    found = np.zeros((columns, TAPS, n, height, width), np.float32)
    for tap in range(TAPS):
        (to_row, row), (to_column, column) = overlap(tap // 3, height), overlap(tap % 3, width)
        found[:, tap, :, to_row, to_column] = values[:, :, row, column]
    return found


def overlap(place: int, side: int) -> tuple[slice, slice]:
    """Which values have a neighbour one before (0), at (1) or after (2), and these neighbours."""
    step = place - 1
    return slice(max(0, -step), side - max(0, step)), slice(max(0, step), side + min(0, step))


def pooled(values: Floats) -> Floats:
    """The largest of every two by two values."""
    height, width = (side // 2 * 2 for side in values.shape[2:])
    rows = np.maximum(values[:, :, 0:height:2], values[:, :, 1:height:2])
    return np.maximum(rows[..., 0:width:2], rows[..., 1:width:2])


def rectified(values: Floats) -> Floats:
    return np.maximum(values, 0, out=values)


class FrozenBody:
    """What turns prepared pictures into features.

    Args:
        widths: Of the ancestor: first, stage, inner, stage, inner, …, last.
        weights: Of every layer, (rows, columns, taps), in the order of the network.
        norms: Of every layer.
    """

    def __init__(
        self, widths: Sequence[int], weights: Sequence[NDArray[Any]],
        norms: Sequence[Mapping[str, NDArray[Any]]],
    ) -> None:  # fmt: skip
        self.stages = [*widths[1:-1:2]]
        self.layers = [Convolution.of(*each) for each in zip(weights, norms, strict=True)]

    def __call__(self, images: Floats) -> Floats:
        """Features (n, d) of prepared pictures (n, channels, height, width)."""
        parts = [self._some(images[at : at + IMAGES]) for at in range(0, len(images), IMAGES)]
        return np.concatenate(parts)

    def _some(self, images: Floats) -> Floats:
        layers = iter(self.layers)
        values = np.ascontiguousarray(images.swapaxes(0, 1))
        values = rectified(pooled(next(layers)(values)))
        present = 0
        for width in self.stages:
            if width != present:
                present, values = width, next(layers)(values)
                if width != self.stages[-1]:
                    values = pooled(values)
                values = rectified(values)
            inner = rectified(next(layers)(values))
            inner = next(layers)(inner)
            inner += values
            values = rectified(inner)
        last: Floats = rectified(next(layers)(values)).mean((2, 3)).T
        return last

    def multiplications(self, height: int, width: int) -> int:
        """MACs of one picture."""
        sizes = [each.weight.size for each in self.layers]
        total = sizes.pop(0) * height * width
        height, width = height // 2, width // 2
        present = 0
        for stage in self.stages:
            if stage != present:
                present, total = stage, total + sizes.pop(0) * height * width
                if stage != self.stages[-1]:
                    height, width = height // 2, width // 2
            total += (sizes.pop(0) + sizes.pop(0)) * height * width
        return total + sizes.pop(0) * height * width

    @property
    def weights(self) -> int:
        """How many it has, offsets included."""
        return sum(each.weight.size + each.offset.size for each in self.layers)


def layer_shapes(widths: Sequence[int], channels: int) -> list[tuple[int, int, int]]:
    """The weights of every layer: (rows, columns, taps)."""
    first, *pairs, last = widths
    if len(pairs) < 2 or len(pairs) % 2:
        raise ValueError("does not have the widths of its network")
    shapes, before, present = [(first, channels, TAPS)], first, 0
    for stage, inner in zip(pairs[::2], pairs[1::2], strict=True):
        if stage != present:
            shapes.append((stage, before, TAPS))
            before = present = stage
        shapes += [(inner, stage, TAPS), (stage, inner, TAPS)]
    return [*shapes, (last, before, 1)]


def recoloured_array(weight: NDArray[Any], before: int, after: int) -> Floats:
    """The weight (rows, inputs, taps) of the layer that reads pictures, for other channels.

    A grey picture has three equal channels; of a coloured one a grey network sees the luminance.
    """
    found: Floats = weight.astype(np.float32)
    if before > after:
        found = found.sum(1, keepdims=True)
    elif before < after:
        found = found * np.array(LUMINANCE, np.float32).reshape(1, -1, 1)
    return found
