"""A picture file to the pixels that a ticket expects, whatever its size, colours and orientation.

The whole picture is brought to the ticket's size; it is stretched where its sides differ.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from rivals.errors import RivalsError

MODES = {1: "L", 3: "RGB"}  # channels of a ticket: mode of pillow
DAMAGE = (
    UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError,
    struct.error, zlib.error, Image.DecompressionBombError, Image.DecompressionBombWarning,
)  # fmt: skip


def read_picture(
    path: str | Path, shape: tuple[int, int, int], scale: float = 255.0
) -> NDArray[np.uint8]:
    """(channels, height, width) bytes of a picture, white being `scale`."""
    channels, height, width = shape
    if channels not in MODES:
        raise RivalsError(
            f"{path} cannot be used: the ticket takes {channels} channels, and a picture has 1 or "
            "3; give `scores` an array."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                upright = ImageOps.exif_transpose(picture)
                plain = plain_colours(upright, MODES[channels])
        if plain.size != (width, height):
            plain = plain.resize((width, height), Image.Resampling.BILINEAR)
    except FileNotFoundError as error:
        raise RivalsError(f"There is no picture {path}.") from error
    except IsADirectoryError as error:
        raise RivalsError(f"{path} is a folder, but a picture was expected.") from error
    except PermissionError as error:
        raise RivalsError(f"{path} cannot be read ({error.strerror}).") from error
    except DAMAGE as error:
        raise RivalsError(
            f"{path} is not a picture that can be read ({type(error).__name__}); "
            "use PNG, JPEG or another format that pillow reads."
        ) from error
    pixels = np.asarray(plain, np.uint8)
    if scale != 255:  # the ticket learned from images whose white is another number
        pixels = np.rint(pixels * (scale / 255)).astype(np.uint8)
    # (height, width[, 3]) → (channels, height, width)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(np.moveaxis(pixels, -1, 0))


def plain_colours(picture: Image.Image, mode: str) -> Image.Image:
    """8 bits a channel without transparency; what shines through is white, like paper."""
    if picture.mode.startswith("I"):  # 16 bits, of which pillow would keep the lowest 8
        deep = np.asarray(picture).astype(np.int64)
        picture = Image.fromarray((deep.clip(0, 65535) // 257).astype(np.uint8))
    elif picture.mode == "F":
        raise ValueError("pixels that are fractions have no agreed white")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture)
    if mode == "L" and picture.mode not in ("L", "1"):
        picture = picture.convert("RGB")  # palettes and inks have no direct way to grey
    return picture.convert(mode)
