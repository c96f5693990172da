"""The PNG and JPEG files of official data sets: only one format and one size is accepted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.pictures import Shape, fit, open_picture

ADVICE = "fetch the official file again"


def decode(data: bytes, name: str, kind: str, side: int, shape: Shape) -> NDArray[np.uint8]:
    """Pixels of `shape` from a `kind` (PNG, JPEG) picture that must be `side` × `side` pixels."""
    with open_picture(data, name, formats=(kind,), advice=ADVICE) as picture:
        if picture.size != (side, side):
            raise RivalsError(
                f"{name} is {picture.width}×{picture.height} pixels, but {side}×{side} were "
                f"expected; {ADVICE}."
            )
        return fit(picture, shape)
