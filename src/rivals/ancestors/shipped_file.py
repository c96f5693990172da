"""The files of the ancestors that come with the package, read without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rivals.errors import RivalsError, unknown
from rivals.io.files import digest
from rivals.io.reading import read_bytes, read_json

SHIPPED = ("tiny", "small")  # those that come with the package
DEFAULT = "small"  # what a new model starts from, where nothing else was said
ANCESTORS_SIDES = (48, 64)  # pixels a side of what they look at: smaller pictures are enlarged
PLACE = Path(__file__).parent
LARGEST = 64 * 2**20  # bytes of an ancestor
PREPARED = ("input.mean", "input.std")  # of the pixels, from 0 to 1; a value for each channel
LUMINANCE = (0.299, 0.587, 0.114)  # what red, green and blue add to a grey pixel


def fitting_side(side: int, sides: tuple[int, ...]) -> int:
    """The first of `sides` that is not much smaller than `side`, or else the last."""
    return next((each for each in sides if side <= each * 1.25), sides[-1])


def shipped_file(name: str) -> tuple[dict[str, Any], bytes]:
    """The card and the bytes of one of them."""
    if name not in SHIPPED:
        raise unknown("ancestor", name, SHIPPED)
    file, card = PLACE / f"{name}.safetensors", PLACE / f"{name}.json"
    facts = read_json(card, "card of an ancestor")
    data = read_bytes(file, "ancestor", LARGEST)
    if digest(data) != facts.get("sha256"):
        raise RivalsError(
            f"The ancestor {file} is not the one that {card} describes; bring back both files."
        )
    return facts, data


def shipped_background(name: str) -> bytes:
    """What is usual in the features of one of them: background.py makes it."""
    file, (facts, _) = PLACE / f"{name}.background.safetensors", shipped_file(name)
    data = read_bytes(file, "background of an ancestor", LARGEST)
    if digest(data) != facts.get("background"):
        raise RivalsError(
            f"The background {file} is not the one that the card of '{name}' describes; bring back "
            "both files."
        )
    return data
