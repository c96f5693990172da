"""Bytes from a browser are accepted only if they decode completely as a picture."""

from __future__ import annotations

import io

from rivals.io.pictures import FORMATS, open_picture, upright


def suffix_of(data: bytes, name: str) -> str:
    """The file name suffix for this picture; anything else than a picture is refused."""
    with open_picture(data, name) as picture:
        picture.draft("RGB", (1024, 1024))  # a JPEG need not be decoded at full size
        upright(picture, "RGB")
        return FORMATS[str(picture.format)]


def thumbnail(data: bytes, name: str, side: int) -> bytes:
    """A small PNG, so that a browser never gets the bytes that somebody uploaded."""
    out = io.BytesIO()
    with open_picture(data, name) as picture:
        picture.draft("RGB", (2 * side, 2 * side))
        small = upright(picture, "RGB")
        small.thumbnail((side, side))
        small.save(out, "PNG")
    return out.getvalue()
