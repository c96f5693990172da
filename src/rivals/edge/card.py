"""The card of an artefact: its tasks, their classes, and the preprocessing of pictures.

Formats with metadata hold the card inside the file. Elsewhere it is a JSON file beside the
artefact: `ticket.tflite` has `ticket.tflite.json`, and the folder of a C program has `card.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError

VERSION = 1


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
    accuracy: float | None = None  # percent on test data
    int8: float | None = None  # share of the weights that are stored as int8

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


def read_sidecar(artefact: Path) -> str:
    """Read the card beside an artefact, without checking it."""
    path = sidecar(artefact)
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise RivalsError(
            f"The card {path} of {artefact} cannot be read ({reason}); "
            "keep both together as `rivals export` wrote them."
        ) from error


def read_card(text: str | None, artefact: Path) -> Card:
    """Parse and check a card; a RivalsError says what is wrong with it."""
    if not text:
        raise RivalsError(
            f"{artefact} has no card of rivals, so its classes are unknown; "
            "make it with `rivals export`."
        )
    try:
        facts = json.loads(text)
        version = facts["rivals"]
    except (ValueError, TypeError, LookupError) as error:
        raise RivalsError(f"The card of {artefact} is damaged; export it again.") from error
    if version != VERSION:
        raise RivalsError(
            f"The card of {artefact} has version {version}, and this version of rivals reads "
            f"{VERSION}; use the version of rivals that exported it, or export it again."
        )
    try:
        return _card(facts)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise RivalsError(
            f"The card of {artefact} is damaged ({type(error).__name__}: {error}); export it again."
        ) from error


def _card(facts: dict[str, Any]) -> Card:
    names_task = "tasks" in facts
    entries = facts["tasks"] if names_task else [facts]
    prepare = facts["preprocessing"]
    channels, height, width = (int(size) for size in facts["input_shape"])
    card = Card(
        tuple(str(entry["task"]) for entry in entries),
        tuple(tuple(str(name) for name in entry["classes"]) for entry in entries),
        (channels, height, width),
        float(prepare["scale"]),
        tuple(float(value) for value in prepare["mean"]),
        tuple(float(value) for value in prepare["std"]),
        bool(facts["raw_input"]),
        names_task,
        facts.get("accuracy"),
        facts.get("int8"),
    )
    if min(card.input_shape) < 1 or card.scale <= 0 or not all(card.classes) or not card.tasks:
        raise ValueError("a size, the scale, a task or a class is missing")
    if not card.raw_input and not len(card.mean) == len(card.std) == channels:
        raise ValueError(f"{channels} means and standard deviations were expected")
    return card
