"""A sample to begin with: handwritten digits that come with the package, drawn as on the page."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

from rivals.web.collection import NewPicture

DIGITS = (3, 5, 8)
EACH = 30  # pictures of a class
SIDE = 64  # pixels, as many as a drawing of the page has


def sample_pictures(task: str) -> Iterator[NewPicture]:
    """Black digits on white."""
    from rivals.streams.digits import load

    images, labels, _ = load()
    for digit in DIGITS:
        chosen = images[labels == digit][:EACH, 0].numpy()  # (n, 8, 8), ink from 0 to 16
        for number, ink in enumerate(chosen):
            paper = Image.fromarray((255 - ink.astype(np.float32) * 255 / 16).astype(np.uint8))
            out = io.BytesIO()
            paper.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(out, "PNG")
            yield NewPicture(task, str(digit), out.getvalue(), f"{digit}-{number}.png")
