"""Bytes from a browser are a picture only if pillow decodes all of them, within limits."""

from __future__ import annotations

import io
import warnings

from PIL import Image, ImageOps

from rivals.errors import RivalsError

# Not all that pillow can read: for some formats it starts other programs.
FORMATS = {
    "PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif",
    "PPM": ".ppm",
}  # fmt: skip
PIXELS = 50_000_000  # a tiny file can claim any number


def suffix_of(data: bytes, name: str) -> str:
    """How the file of this picture ends; what is no picture is refused."""
    with _opened(data, name) as picture:
        return FORMATS[str(picture.format)]


def decoded(data: bytes, name: str) -> Image.Image:
    """The first frame, upright."""
    with _opened(data, name) as picture:
        return ImageOps.exif_transpose(picture)


def thumbnail(data: bytes, name: str, side: int) -> bytes:
    """A small PNG, so that a browser is never handed what somebody uploaded."""
    small = decoded(data, name)
    if small.mode.startswith("I") or small.mode == "F":  # shown roughly; learned from as it is
        small = small.point(lambda value: value / 256).convert("L")
    small = small.convert("RGBA")
    small.thumbnail((side, side))
    out = io.BytesIO()
    small.save(out, "PNG")
    return out.getvalue()


def _opened(data: bytes, name: str) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data), formats=tuple(FORMATS))
            if picture.width * picture.height > PIXELS:
                raise Image.DecompressionBombError
            picture.draft("RGB", (1024, 1024))  # a photo need not be decoded at full size
            picture.load()
            return picture
    except Image.DecompressionBombError as error:
        raise RivalsError(
            f"{name} has more than {PIXELS // 10**6} million pixels, which is the most; "
            "make it smaller."
        ) from error
    except Exception as error:  # broken bytes make pillow raise nearly anything
        raise RivalsError(
            f"{name} is not a picture that can be read; use PNG, JPEG, WebP, GIF, BMP or TIFF."
        ) from error
