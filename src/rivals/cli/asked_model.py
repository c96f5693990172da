"""A model's folder that `rivals predict` asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rivals.model.predictor import Predictor


class AskedModel:
    """Answers with a class, and names the task unless it is given."""

    def __init__(self, path: Path, task: str | None, reject: float | None) -> None:
        self.predictor, self.task, self.reject = Predictor(path), task, reject
        self.predictor.check(task, reject)
        self.several = len(self.predictor.tasks) > 1

    def read(self, path: str) -> NDArray[np.uint8]:
        return self.predictor.read(path)

    def answers(self, images: NDArray[np.uint8]) -> list[tuple[str, str, float, bool]]:
        return [
            (each.task, each.label, each.confidence, each.rejected)
            for each in self.predictor.decide(images, self.task, self.reject)
        ]
