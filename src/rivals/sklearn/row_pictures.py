"""Rows of numbers as pictures: which shape they have, and which of their values is white.

    (n, h, w)  (n, h, w, 3)  (n, 3, h, w)  (n, features)   ─►   uint8 (n, channels, height, width)

Flat rows are pictures when `image_shape` says so, or when their length does: h · h grey ones, and
h · h · 3 ones in colour, as `(h, w, 3)` is flattened. Fewer than 64 values are no picture of 8 × 8
pixels, which is the least: they are a table, laid out row by row in the smallest square that holds
them, each column on a scale of its own.

Bytes are pixels as they are. Other numbers become pixels on the scale of the data that were learned
first: the smallest value is black, the largest is white, and what lies beyond is cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.pictures import array_shape, channels_first

SMALLEST = 64  # values of a picture
WHITE = 255.0
BEYOND = 0.05  # share of the values to learn from that may lie outside of the scale

Numbers = NDArray[Any]
Range = tuple[float, float]


class RowsError(RivalsError, ValueError):
    """A RivalsError that scikit-learn knows as a ValueError, too."""


@dataclass(frozen=True)
class RowPictures:
    """How the rows of an array become pictures, decided by the first data."""

    layout: tuple[int, ...]  # of one flat row: (h, w), (h, w, 3) or (3, h, w)
    features: int  # values in a row; a table may leave places of the layout empty
    low: Numbers  # the value that is black: one for all, or one for each column of a table
    high: Numbers  # and white

    @classmethod
    def of(
        cls, rows: Numbers, image_shape: tuple[int, ...] | None, pixel_range: Range | None
    ) -> RowPictures:
        """What rows (n, features) are; the arguments win over what they look like."""
        low, high = np.zeros(1), np.full(1, WHITE)
        if pixel_range is not None:
            low, high = (np.array([value]) for value in checked_range(pixel_range))
        elif rows.dtype != np.uint8:
            table = image_shape is None and rows.shape[1] < SMALLEST
            axis = 0 if table else None
            low, high = (
                np.atleast_1d(each).astype(float) for each in (rows.min(axis), rows.max(axis))
            )
        return cls(layout_of(rows.shape[1], image_shape), rows.shape[1], low, high)

    def check_scale(self, rows: Numbers) -> None:
        """Refuse to learn from values of which this scale would cut off many."""
        share = float(((rows < self.low) | (rows > self.high)).mean())
        if share > BEYOND:
            raise RowsError(
                f"{100 * share:.0f} % of the values lie outside of {self.low.min():g} to "
                f"{self.high.max():g}, the scale of what was learned first; bring them to that "
                "scale, or give pixel_range=(black, white) for all tasks."
            )

    def check_shape(self, shape: tuple[int, ...] | None) -> None:
        """Refuse pictures of another shape than those that were learned; rows have none."""
        if shape not in (None, self.layout):
            raise RowsError(
                f"The pictures are {shape}, but {self.layout} was learned; bring them to that "
                "shape."
            )

    def __call__(self, rows: Numbers) -> NDArray[np.uint8]:
        """Rows as pixels (n, channels, height, width)."""
        if rows.dtype != np.uint8 or (self.low.max(), self.high.min()) != (0.0, WHITE):
            span = np.where(self.high > self.low, self.high - self.low, 1.0)
            share = ((rows - self.low) / span).clip(0, 1)
            rows = np.rint(share * WHITE).astype(np.uint8)
        empty = math.prod(self.layout) - self.features
        pixels = np.pad(rows, ((0, 0), (0, empty))).reshape(-1, *self.layout)
        return channels_first(pixels, batch=True)


def layout_of(features: int, image_shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """The picture that a flat row is, as it is said or as its length says."""
    if image_shape is not None:
        layout = tuple(image_shape)
        array_shape(np.empty((0, *layout), np.uint8), "image_shape", batch=True)
        if math.prod(layout) != features:
            raise RowsError(
                f"A row has {features} values, but image_shape {layout} needs "
                f"{math.prod(layout)}; change one of them."
            )
        return layout
    side = math.isqrt(features)
    if features < SMALLEST:
        side += side * side < features
        return side, side
    if side * side == features:
        return side, side
    third = math.isqrt(features // 3)
    if 3 * third * third == features:
        return third, third, 3
    raise RowsError(
        f"A row has {features} values, which no square picture has; say which picture it is with "
        "image_shape, for example (height, width), or give pictures (n, height, width)."
    )


def checked_range(pixel_range: Range) -> Range:
    """Black and white as they are given."""
    try:
        black, white = map(float, pixel_range)
    except (TypeError, ValueError):
        black = white = 0.0
    if not (math.isfinite(black) and math.isfinite(white) and black < white):
        raise RowsError(
            f"pixel_range is {pixel_range!r}, but the values of black and of white, such as "
            "(0, 1), were expected."
        )
    return black, white
