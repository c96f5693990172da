"""A heat map laid over its picture: orange decided for the class, blue against it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SHORTEST, LONGEST = 256, 768  # pixels of the longer side: small pictures are enlarged
FOR, AGAINST = (255, 120, 0), (0, 110, 255)  # told apart by the colour-blind, too
STRONGEST = 0.7  # share of the colour where the heat is largest
FAINT = 1.0  # log-odds: maps that stay below are drawn fainter
PALE = 0.2  # how much of its own colour the picture keeps


def draw_heat(picture: Image.Image, heat: NDArray[np.float32]) -> Image.Image:
    """The picture, paler, with the heat (rows, columns) in colours over it."""
    longer = max(picture.size)
    scale = max(1.0, SHORTEST / longer)
    size = round(picture.width * scale), round(picture.height * scale)
    plain = picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    pale = Image.blend(plain.convert("L").convert("RGB"), plain, PALE)
    strength = heat / max(FAINT, float(np.abs(heat).max()))
    smooth = Image.fromarray(strength.astype(np.float32)).resize(size, Image.Resampling.BILINEAR)
    share = np.asarray(smooth)[:, :, None]  # (height, width, 1), −1 to 1
    colour = np.where(share > 0, np.array(FOR), np.array(AGAINST))
    alpha = STRONGEST * np.abs(share)
    mixed = (1 - alpha) * np.asarray(pale, np.float32) + alpha * colour
    return Image.fromarray(mixed.round().astype(np.uint8))
