"""A loaded artefact: pictures in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.answer import Answer, Choice
from rivals.edge.card import read_card
from rivals.edge.runtime import open_runtime
from rivals.errors import RivalsError
from rivals.io.pictures import Picture, to_pixels

BATCH_SIZE = 64  # images of one pass; limits memory


class Artefact:
    """An exported ticket, or an exported model of several tasks, ready to run."""

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        self.path = Path(path)
        self.runtime = open_runtime(self.path, threads)
        self.card = read_card(self.runtime.card, self.path)

    def classify(self, picture: Picture) -> Answer:
        """The class of one picture: a path, bytes, a PIL image, an array or a tensor."""
        pixels = to_pixels(picture, self.card.input_shape, self.card.scale)
        return self.answers(pixels[None])[0]

    def answers(self, images: NDArray[np.uint8]) -> list[Answer]:
        """One answer per image; uint8 images (n, channels, height, width) with white = `scale`."""
        card = self.card
        if card.names_task:  # it gives the best class alone
            return [
                Answer((Choice(card.classes[task][label], card.tasks[task], float(confidence)),))
                for task, label, confidence in zip(*self.decide(images), strict=True)
            ]
        answers = []
        for row in softmax(self.scores(images)):
            order = np.argsort(-row, kind="stable")
            choices = (Choice(card.classes[0][k], card.tasks[0], float(row[k])) for k in order)
            answers.append(Answer(tuple(choices)))
        return answers

    def decide(self, images: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Task index, class index within the task, and confidence of each image: (n,) each."""
        if self.card.names_task:
            task, label, confidence = self.run(images)
            return task, label, confidence
        probabilities = softmax(self.scores(images))
        label = probabilities.argmax(1)
        return np.zeros_like(label), label, probabilities.max(1)

    def scores(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Logits (n, classes) of images (n, channels, height, width)."""
        if self.card.names_task:
            raise RivalsError(
                f"{self.path} holds {len(self.card.tasks)} tasks and answers with the task and the "
                "class; use `decide` or `answers`."
            )
        return self.run(images)[0]

    def run(self, images: NDArray[np.uint8]) -> list[NDArray[Any]]:
        """All outputs of the artefact, computed in batches."""
        wanted = self.card.input_shape
        if images.dtype != np.uint8 or images.shape[1:] != wanted or not len(images):
            size = " × ".join(str(side) for side in wanted)
            raise RivalsError(
                f"{self.path} takes uint8 images (n, {size}) with n of at least 1, but got "
                f"{images.dtype} {images.shape}."
            )
        outputs: list[Sequence[NDArray[Any]]] = [
            self.runtime(self.card.prepare(images[start : start + BATCH_SIZE]))
            for start in range(0, len(images), BATCH_SIZE)
        ]
        return [np.concatenate(parts) for parts in zip(*outputs, strict=True)]


def load(path: str | Path, threads: int = 1) -> Artefact:
    """Load the artefact at `path`; a RivalsError says what is wrong with it."""
    return Artefact(path, threads)


def softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities (n, classes)."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    shares: NDArray[np.float32] = powers / powers.sum(1, keepdims=True)
    return shares
