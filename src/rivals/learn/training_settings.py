"""The settings that every method has."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rivals.settings import Settings
from rivals.streams.batching import Batching


class EpisodeSettings(Settings):
    """Batches that hold a few images of a few classes, as in few-shot learning."""

    shots: int = Field(0, ge=0, description="images of each class in a batch; 0: shuffled batches")
    ways: int = Field(0, ge=0, description="classes in a batch; 0: all classes of the task")


class NamingSettings(Settings):
    """How the task of an image is found when it is not given."""

    rule: Literal[
        "filters", "filters+judge", "confidence", "entropy", "energy", "features", "pixels",
        "pixels+confidence", "judge",
    ] = Field("filters", description="see docs/task-unknown.md; judges keep images")  # fmt: skip
    images_per_class: int = Field(10, ge=1, description="images that a judge keeps")


class TrainingSettings(Settings):
    """Settings that every method has; a method derives its own from these."""

    epochs: int = Field(10, ge=1, description="passes over the training data of a task")
    batch_size: int = Field(40, ge=1, description="images in a step")
    lr: float = Field(
        0.05, gt=0, allow_inf_nan=False, description="learning rate; falls to 0 over a task"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False, description="of SGD")
    augmentation: Literal["none", "flip", "crop", "crop-flip"] = Field(
        "none", description="random changes to training images"
    )
    episodes: EpisodeSettings = EpisodeSettings()
    naming: NamingSettings = NamingSettings()

    @property
    def batching(self) -> Batching:
        episodes = self.episodes
        return Batching(self.batch_size, episodes.shots, episodes.ways, self.augmentation)
