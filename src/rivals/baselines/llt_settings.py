"""Settings of LLT."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import Field

from rivals.baselines.rehearsal import RehearsalSettings
from rivals.errors import RivalsError
from rivals.streams.data.catalogue import CATALOGUE

DATASETS = tuple(data.name for data in CATALOGUE)


class LLTSettings(RehearsalSettings):
    """How the network is pruned, and what it is held by."""

    width: Literal["ticket", "dense"] = "dense"
    norms: Literal["task", "shared"] = "shared"
    weight_decay: float = 5e-4
    budget: int = 100
    prune: Literal["top-down", "none"] = Field(
        "top-down", description="top-down | none: a dense network"
    )
    rounds: tuple[int, ...] = Field(
        (1, 1, 2, 3, 5), description="of pruning, after the first task and so on"
    )
    prune_share: float = Field(0.2, description="of the weights left, in a round")
    retrain: float = Field(0.3, description="epochs after a pruning, a share of epochs")
    retrain_lr: float = Field(0.01, description="in them, a share of lr")
    rewind: Literal["initial", "none"] = Field(
        "initial",
        description="where a task starts: initial values | none: where the last one ended",
    )
    distil: bool = True
    pool: str = Field(
        "none", description="none: exemplars and present images | a data set | a folder of pictures"
    )
    neighbours: int = Field(50, description="pictures of the pool for each exemplar")
    unlabelled: int = Field(5000, description="pictures to distil on, at most")
    temperature: float = 2.0

    def check(self) -> None:
        super().check()
        self.need_shared_norms("the classes of all tasks compete")
        if not self.rounds or min(self.rounds) < 1:
            raise RivalsError(f"rounds are {self.rounds}, but must be at least 1 each.")
        for name in ("prune_share", "retrain", "retrain_lr"):
            if not 0 < getattr(self, name) < 1:
                raise RivalsError(f"{name} is {getattr(self, name)}, but is a share from 0 to 1.")
        for name in ("neighbours", "unlabelled"):
            if getattr(self, name) < 1:
                raise RivalsError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        if not 0 < self.temperature < math.inf:
            raise RivalsError(f"temperature is {self.temperature}, but must be positive.")
        if self.pool not in ("none", *DATASETS) and not Path(self.pool).is_dir():
            raise RivalsError(
                f"pool is '{self.pool}', which is no folder; use none, a folder of pictures, or "
                f"one of {', '.join(DATASETS)}."
            )
