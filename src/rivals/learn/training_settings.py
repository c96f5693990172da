"""The settings that every method has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rivals.errors import RivalsError
from rivals.naming.rule import PER_CLASS
from rivals.naming.rules import RULES
from rivals.streams.augment import AUGMENTATIONS
from rivals.streams.batching import Batching


@dataclass(frozen=True)
class TrainingSettings:
    """Settings that every method has; a method adds its own in a dataclass derived from this."""

    epochs: int = 10
    batch: int = 40
    lr: float = 0.05  # annealed to 0 over the steps of a task
    momentum: float = 0.9
    weight_decay: float = 0.0
    augmentation: str = "none"  # none | flip | crop | crop-flip
    shots: int = 0  # episodic batches of so many images a class; 0: plain batches
    ways: int = 0  # classes in an episode; 0: all of the task
    infer: str = "pixels+confidence"  # how a task is named that is not given: methods/inference.py
    kept_per_class: int = PER_CLASS  # images that infer=judge keeps

    @property
    def batching(self) -> Batching:
        return Batching(self.batch, self.shots, self.ways, self.augmentation)

    def __post_init__(self) -> None:
        one_of(self, "augmentation", AUGMENTATIONS)
        one_of(self, "infer", tuple(RULES))
        lowest = {"epochs": 1, "batch": 1, "shots": 0, "ways": 0, "kept_per_class": 1}
        for name, low in lowest.items():
            if getattr(self, name) < low:
                raise RivalsError(f"{name} is {getattr(self, name)}, but must be at least {low}.")
        if not 0 < self.lr < math.inf:
            raise RivalsError(f"lr is {self.lr}, but must be a positive number.")
        if not 0 <= self.momentum < 1:
            raise RivalsError(f"momentum is {self.momentum}, but must be at least 0 and below 1.")
        if not 0 <= self.weight_decay < math.inf:
            raise RivalsError(f"weight_decay is {self.weight_decay}, but must not be negative.")


def one_of(settings: object, name: str, known: Sequence[str]) -> None:
    """Refuse a setting that is not among the known words."""
    value = getattr(settings, name)
    if value not in known:
        raise RivalsError(f"{name} is '{value}'; use {', '.join(known[:-1])} or {known[-1]}.")
