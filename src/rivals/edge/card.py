"""The card of an artefact: its tasks, their classes, and the preprocessing of pictures.

Formats with metadata hold the card inside the file. Elsewhere it is a JSON file beside the
artefact: `ticket.tflite` has `ticket.tflite.json`, and the folder of a C program or of a page has
`card.json`. Its field `sha256` covers the card and the artefact; cards of version 1 have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.reading import UnreadableError, parse_json, printable
from rivals.io.spectrogram import SoundSettings

VERSION = 2
WITHOUT_CHECKSUM = 1  # the version of rivals 0.1, which is still read
BYTES = 4 * 2**20  # of a card
PIXELS = 2**22  # values of an image
SIDE = 4096
SMALLEST, LARGEST = 1e-6, 1e6  # scales, deviations and means, which are computed with in float32


@dataclass(frozen=True)
class Card:
    """Everything that is needed to use an artefact."""

    tasks: tuple[str, ...]  # one for a ticket, all tasks for a whole model
    classes: tuple[tuple[str, ...], ...]  # of each task
    input_shape: tuple[int, int, int]  # (channels, height, width)
    scale: float  # the value of white in the training images
    mean: tuple[float, ...]  # by channel, of pixels / scale
    std: tuple[float, ...]
    raw_input: bool  # the artefact takes uint8 and does the preprocessing itself
    names_task: bool  # its outputs are task, class and confidence instead of logits
    ranks: bool = False  # and, after these, the probability of each class within its task
    familiar: bool = False  # among the classes of all tasks; and how familiar a picture looks
    accuracy: float | None = None  # percent on test data
    int8: float | None = None  # share of the weights that are stored as int8
    version: int = VERSION
    sound: SoundSettings | None = None  # how it reads sounds, where these are its pictures

    def prepare(self, images: NDArray[np.uint8]) -> NDArray[Any]:
        """Preprocess images (n, channels, height, width) for the artefact."""
        if self.raw_input:
            return images
        shape = (1, -1, 1, 1)
        mean, std = (np.array(each, np.float64).reshape(shape) for each in (self.mean, self.std))
        factor, offset = 1 / (self.scale * std), mean / std
        return images.astype(np.float32) * factor.astype(np.float32) - offset.astype(np.float32)


def sidecar(artefact: Path) -> Path:
    """The path of the card of an artefact without metadata."""
    if artefact.is_dir():
        return artefact / "card.json"
    return artefact.with_name(f"{artefact.name}.json")


def next_sidecar(artefact: Path) -> Path:
    """Where the card of an artefact waits that takes the place of another.

    Two files cannot be replaced at once. While the new artefact takes its place, the new card is
    here, and whichever of the two cards fits the artefact counts.
    """
    return artefact.with_name(f".{sidecar(artefact).name}.next")


def read_card(text: str | None, artefact: Path) -> Card:
    """Parse and check a card; a RivalsError says what is wrong with it."""
    if not text:
        raise RivalsError(
            f"{artefact} has no card of rivals, so its classes are unknown; "
            "make it with `rivals export`."
        )
    data = text.encode()
    try:
        if len(data) > BYTES:
            raise UnreadableError(f"The card of {artefact} has more than {BYTES:,} bytes.")
        facts = parse_json(data, f"The card of {artefact}")
    except UnreadableError as error:
        raise RivalsError(f"{str(error)[:-1]}; export it again.") from error
    version = facts.get("rivals")
    if type(version) is not int or version not in (WITHOUT_CHECKSUM, VERSION):
        raise RivalsError(
            f"The card of {artefact} has version {printable(str(version), 20)}, and this version "
            f"of rivals reads {WITHOUT_CHECKSUM} and {VERSION}; use the version of rivals that "
            "exported it, or export it again."
        )
    try:
        return _card(facts, version)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        reason = printable(f"{type(error).__name__}: {error}")
        raise RivalsError(
            f"The card of {artefact} is damaged ({reason}); export it again."
        ) from error


def _card(facts: dict[str, Any], version: int) -> Card:
    names_task = "tasks" in facts
    entries = facts["tasks"] if names_task else [facts]
    prepare = facts["preprocessing"]
    channels, height, width = (_whole(size) for size in facts["input_shape"])
    card = Card(
        tuple(_text(entry["task"]) for entry in entries),
        tuple(tuple(_text(name) for name in entry["classes"]) for entry in entries),
        (channels, height, width),
        _finite(prepare["scale"]),
        tuple(_finite(value) for value in prepare["mean"]),
        tuple(_finite(value) for value in prepare["std"]),
        bool(facts["raw_input"]),
        names_task,
        names_task and facts.get("probabilities") is True,
        names_task and facts.get("probabilities") is True and facts.get("familiar") is True,
        None if facts.get("accuracy") is None else _finite(facts["accuracy"]),
        None if facts.get("int8") is None else _finite(facts["int8"]),
        version,
        SoundSettings.checked(facts["sound"]) if facts.get("sound") is not None else None,
    )
    if not all(card.classes) or not card.tasks:
        raise ValueError("a task or a class is missing")
    check_preprocessing(card.scale, card.mean, card.std)
    if not 1 <= min(card.input_shape) <= max(card.input_shape) <= SIDE:
        raise ValueError(f"images of {channels} × {height} × {width} are not possible")
    if channels * height * width > PIXELS:
        raise ValueError(f"an image has more than {PIXELS:,} values")
    if not card.raw_input and not len(card.mean) == len(card.std) == channels:
        raise ValueError(f"{channels} means and standard deviations were expected")
    return card


def check_preprocessing(scale: float, mean: Sequence[float], std: Sequence[float]) -> None:
    """Refuse numbers that no picture can be prepared with."""
    if not all(SMALLEST <= value <= LARGEST for value in (scale, *std)):
        raise ValueError(f"a scale or a deviation is not between {SMALLEST:g} and {LARGEST:g}")
    if not all(abs(value) <= LARGEST for value in mean):
        raise ValueError(f"a mean is not between {-LARGEST:g} and {LARGEST:g}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name is not text")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("a size is not a whole number")
    return value


def _finite(value: Any) -> float:
    """A number; 1e999 is valid JSON and infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a value is not a number")
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return float(value)
