"""An exported artefact that `rivals predict` asks, without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rivals.edge.artefact import load
from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels


class AskedArtefact:
    """Answers as the runtime of the artefact does."""

    def __init__(self, path: Path, task: str | None, reject: float | None, threads: int) -> None:
        if reject is not None:
            raise RivalsError(
                f"--reject needs a model's folder, which keeps what its pictures look like; "
                f"{path} is an exported artefact."
            )
        self.artefact = load(path, threads)
        card = self.artefact.card
        if task is not None and card.tasks != (task,):
            raise RivalsError(
                f"{path} answers for {', '.join(card.tasks)}, not for '{task}' alone; "
                "leave out --task, or ask the model."
            )
        self.several = len(card.tasks) > 1

    def read(self, path: str) -> NDArray[np.uint8]:
        return to_pixels(path, self.artefact.card.input_shape, self.artefact.card.scale)

    def answers(self, images: NDArray[np.uint8]) -> list[tuple[str, str, float, bool]]:
        found = self.artefact.answers(images)
        return [(each.task, each.label, each.confidence, False) for each in found]
