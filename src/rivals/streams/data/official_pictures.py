"""One PNG or JPEG to bytes, its size checked before a pixel is decoded."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from rivals.errors import RivalsError


def decode(
    data: bytes, name: str, kind: str, side: int, mode: str, resize: int = 0
) -> NDArray[np.uint8]:
    """(channels, height, width) of a `kind` (PNG, JPEG) picture of `side`², as `mode` (L, RGB)."""
    try:
        with Image.open(io.BytesIO(data), formats=(kind,)) as picture:
            if picture.size != (side, side):
                raise RivalsError(
                    f"{name} is {picture.width}×{picture.height} pixels, but {side}×{side} were "
                    "expected; fetch the official file again."
                )
            plain = picture.convert(mode)
            if resize and resize != side:
                plain = plain.resize((resize, resize), Image.Resampling.BILINEAR)
            pixels = np.asarray(plain, np.uint8)
    except (
        UnidentifiedImageError,
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        zlib.error,
        Image.DecompressionBombError,
    ) as error:
        raise RivalsError(
            f"{name} is not a readable {kind} picture ({type(error).__name__}); "
            "fetch the official file again."
        ) from None
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
