"""Small folders of pictures made from the bundled digits, and small models taught from them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from rivals.model.folder import ModelFolder
from rivals.model.learning import Learned, learn

QUICK: dict[str, Any] = {"network": "mlp", "size": 8, "grey": True, "epochs": 4}
WORDS = ["--network", "mlp", "--size", "8", "--grey", "--epochs", "4"]


@cache
def digits() -> Any:
    return load_digits()


def digit(number: int) -> tuple[Image.Image, int]:
    """A bundled digit as a picture of 8×8 grey pixels, and what it is."""
    data = digits()
    pixels = (data.images[number] * 15).astype(np.uint8)
    return Image.fromarray(pixels), int(data.target[number])


@cache
def numbers(label: int) -> tuple[int, ...]:
    """The bundled pictures of one digit, in an order by chance: neighbours are of one writer."""
    found = np.flatnonzero(digits().target == label)
    return tuple(np.random.default_rng(label).permutation(found).tolist())


def asked(classes: tuple[int, ...], first: int = 100) -> list[tuple[Image.Image, int]]:
    """Pictures of the digits `classes` and what they are, from the `first` of each on."""
    return [digit(number) for label in classes for number in numbers(label)[first:]]


def folder(place: Path, classes: tuple[int, ...], count: int, first: int = 0) -> Path:
    """`count` pictures of each of the digits `classes`, from the `first` of each on."""
    for label in classes:
        own = place / f"digit {label}"
        own.mkdir(parents=True)
        for number in numbers(label)[first : first + count]:
            digit(number)[0].save(own / f"{number}.png")
    return place


def teach(place: Path, model: Path, **changes: Any) -> Learned:
    """A quick lesson."""
    return learn(place, model, **{**QUICK, **changes})


def marks(model: Path) -> dict[str, str]:
    """A fingerprint of every ticket and of what else a task has: equal bits, equal marks."""
    opened = ModelFolder.open(model)
    found = {}
    for task in opened.tasks:
        kept = opened.method.known[task.name].kept or {}
        tensors = {**kept, **opened.familiarity[task.name].tensors()}
        rest = b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors))
        ticket = opened.ticket(task.name).fingerprint()
        found[task.name] = ticket + hashlib.sha256(rest).hexdigest()
    return found
