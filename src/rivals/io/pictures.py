"""A picture to the pixels that a ticket expects, whatever its size, colours and orientation.

Learning, predicting and exported tickets all read pictures here, so that they see the same bytes.
The whole picture is brought to the ticket's size; it is stretched where its sides differ. Of an
animated picture the first frame counts.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import warnings
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from rivals.errors import RivalsError

Shape = tuple[int, int, int]  # (channels, height, width)

# Not all that pillow can read: for some formats it starts other programs.
FORMATS = (
    "PNG", "JPEG", "MPO", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000", "ICO",
    "TGA", "PCX", "SGI", "XBM", "QOI",
)  # fmt: skip
LARGEST = 50_000_000  # pixels; a tiny file can claim any number
MODES = {1: "L", 3: "RGB"}  # channels of a ticket: mode of pillow
DAMAGE = (
    UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError,
    struct.error, zlib.error, Image.DecompressionBombError, Image.DecompressionBombWarning,
    OverflowError, KeyError, AttributeError, MemoryError, RuntimeError,
)  # fmt: skip


def read_picture(path: str | Path, shape: Shape, scale: float = 255.0) -> NDArray[np.uint8]:
    """(channels, height, width) bytes of a picture file, white being `scale`."""
    check_channels(shape[0], path)
    with opened(path) as picture:
        return pixels(picture, shape, scale)


def picture_size(path: str | Path) -> tuple[int, int, bool]:
    """Width, height, and whether it may have colours, without decoding a pixel."""
    with opened(path) as picture:
        return picture.width, picture.height, picture.mode not in ("1", "L", "LA", "I", "I;16")


def pixels(picture: Image.Image, shape: Shape, scale: float = 255.0) -> NDArray[np.uint8]:
    """The same of a picture that is open; raises one of `DAMAGE` where it cannot be decoded."""
    channels, height, width = shape
    if picture.format == "JPEG":  # decoded at a fraction of its size where that is enough
        picture.draft(None, (2 * width, 2 * height))
    upright = ImageOps.exif_transpose(picture)
    plain = plain_colours(upright, MODES[channels])
    if plain.size != (width, height):
        plain = plain.resize((width, height), Image.Resampling.BILINEAR)
    values = np.asarray(plain, np.uint8)
    if scale != 255:  # the ticket learned from images whose white is another number
        values = np.rint(values * (scale / 255)).astype(np.uint8)
    # (height, width[, 3]) → (channels, height, width)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(np.moveaxis(values, -1, 0))


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[Image.Image]:
    """An open picture; whatever is wrong with it, here or inside, is told in one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            formats = _formats()
            with os.fdopen(_regular(path), "rb") as file, Image.open(file, "r", formats) as picture:
                if picture.width * picture.height > LARGEST:
                    raise RivalsError(
                        f"{path} is {picture.width}×{picture.height} pixels, more than the "
                        f"{LARGEST // 1_000_000} million that are read; make it smaller."
                    )
                yield picture
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


@cache
def _formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this pillow knows."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _regular(path: str | Path) -> int:
    """A file to read from: what would wait for somebody to write is not opened."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    kind = os.fstat(number).st_mode
    if stat.S_ISREG(kind):
        return number
    os.close(number)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError
    raise ValueError("it is not a regular file")


def check_channels(channels: int, what: str | Path) -> None:
    if channels not in MODES:
        raise RivalsError(
            f"{what} cannot be used: the ticket takes {channels} channels, and a picture has 1 or "
            "3; give `scores` an array."
        )


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
