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
from typing import Any

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


def to_pixels(picture: Any, shape: Shape, scale: float = 255.0) -> NDArray[np.uint8]:
    """(channels, height, width) bytes of a PIL image, an array or a tensor.

    Arrays are (height, width), (height, width, channels) or (channels, height, width), as bytes or
    as floats from 0 to 1.
    """
    if not isinstance(picture, Image.Image):
        values = channels_first(as_bytes(np.asarray(picture), "A picture"))  # (c, h, w)
        if values.shape == shape and scale == 255:
            return values
        flat = values[0] if len(values) == 1 else np.moveaxis(values, 0, -1)
        picture = Image.fromarray(np.ascontiguousarray(flat))
    return pixels(picture, shape, scale)


def as_bytes(values: NDArray[Any], what: str) -> NDArray[np.uint8]:
    """Pixels from 0 to 255; `what` begins the sentence about pixels that are neither bytes nor
    floats from 0 to 1."""
    if values.dtype == np.uint8:
        return values
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if np.issubdtype(values.dtype, np.floating) and low >= 0 and high <= 1:
        scaled: NDArray[np.uint8] = np.rint(values * 255).astype(np.uint8)
        return scaled
    if np.issubdtype(values.dtype, np.integer) and low >= 0 and high <= 255:
        return values.astype(np.uint8)
    raise RivalsError(
        f"{what}: values of type {values.dtype} from {low:g} to {high:g} were found, but bytes "
        "from 0 to 255 or floats from 0 to 1 were expected; leave out normalisation."
    )


def array_shape(values: NDArray[Any], what: str, batch: bool = False) -> Shape:
    """(channels, height, width) of an array of pixels, or of a batch of them."""
    shape = values.shape[1:] if batch else values.shape
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 3 and shape[0] in MODES:
        return shape
    if len(shape) == 3 and shape[2] in MODES:
        return (shape[2], shape[0], shape[1])
    raise RivalsError(
        f"{what} has the shape {shape}, but (height, width), (height, width, channels) or "
        "(channels, height, width) with 1 or 3 channels was expected."
    )


def channels_first(values: NDArray[np.uint8], batch: bool = False) -> NDArray[np.uint8]:
    """An array of pixels, or a batch of them, as (…, channels, height, width)."""
    channels, height, width = array_shape(values, "A picture", batch)
    if values.shape[-3:] == (channels, height, width) and values.ndim == 3 + batch:
        return values
    if values.ndim == 2 + batch:
        return np.expand_dims(values, -3)
    return np.moveaxis(values, -1, -3)
