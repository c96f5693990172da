"""Mistakes side by side in one picture: what each is, and below it what was answered."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from rivals.io.files import write_bytes
from rivals.model.testing import Mistake

ACROSS = 6  # pictures in a row
SIDE = 128  # pixels of each
GAP, LINE = 12, 16  # between them, and of a line of text
INK, WRONG, PAPER = (30, 30, 30), (190, 40, 0), (255, 255, 255)


def save_sheet(mistakes: Sequence[Mistake], path: Path) -> None:
    """Write the sheet of one or more mistakes as a PNG, whole or not at all."""
    out = io.BytesIO()
    draw_sheet(mistakes).save(out, "PNG")
    write_bytes(path, out.getvalue())


def draw_sheet(mistakes: Sequence[Mistake]) -> Image.Image:
    """The mistakes in their order, row by row; pictures as the model sees them."""
    columns = min(ACROSS, len(mistakes))
    rows = -(-len(mistakes) // columns)
    step, down = SIDE + GAP, SIDE + 2 * LINE + GAP
    sheet = Image.new("RGB", (columns * step + GAP, rows * down + GAP), PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for number, each in enumerate(mistakes):
        left, top = GAP + number % columns * step, GAP + number // columns * down
        sheet.paste(_picture(each), (left, top))
        told = f"{each.answer} {100 * each.confidence:.0f} %"
        for line, (text, colour) in enumerate(((each.truth, INK), (told, WRONG))):
            place = left, top + SIDE + line * LINE
            pen.text(place, _shortened(text, pen, font), colour, font)
    return sheet


def _picture(mistake: Mistake) -> Image.Image:
    pixels = mistake.image.transpose(1, 2, 0)  # (height, width, channels)
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def _shortened(
    text: str, pen: ImageDraw.ImageDraw, font: ImageFont.ImageFont | ImageFont.FreeTypeFont
) -> str:
    """The text, or as much of it as is as wide as a picture."""
    if pen.textlength(text, font) <= SIDE:
        return text
    while text and pen.textlength(f"{text}…", font) > SIDE:
        text = text[:-1]
    return f"{text}…"
