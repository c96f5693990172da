"""The settings of TWTA. The defaults are what works; the paper's are in recipes/twta-paper.yaml."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rivals.errors import RivalsError
from rivals.learn.training_settings import TrainingSettings, one_of


@dataclass(frozen=True)
class TWTASettings(TrainingSettings):
    """How units compete, and what becomes of their edges."""

    compete: float = 0.0  # share of a task's steps in which units compete; 0: one draw decides
    contenders: int = 2  # units of a block that compete, the favourites of its posterior; 0: all
    way: str = "sparse"  # relaxed | gated | sparse | trial: newcomers against the ancestor's units
    live: int = 1  # units of a block that are live at first (sparse)
    live_end: int = 1  # and when the competition ends
    reuse: float = 0.6  # share of blocks in which the ancestor wins again, least moved (trial)
    per_example: bool = False  # a draw for each example instead of each step (relaxed)
    temperature: float = 0.67  # τ at the first step
    temperature_end: float = 0.01
    spread: float = 4.0  # standard deviation of log π at the start; 0: Glorot-normal
    posterior_optimiser: str = "adam"  # adam | sgd
    posterior_lr: float = 0.1
    prefer_free: float = 20.0  # what a unit with only free edges has ahead, in log π
    gradient_keep: str = "all"  # all | winner | threshold
    gradient_threshold: float = 0.01  # posterior below which a unit's gradient is dropped
    loss_over: str = "task"  # task: the task's classes | seen: all classes so far, old heads frozen
    protect: str = "edges"  # edges | none
    inherit: str = "previous"  # previous | none
    grow: str = "auto"  # auto | never
    grow_below: float = 0.25  # grow a layer when less of its ticket would be trainable

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "way", ("relaxed", "gated", "sparse", "trial"))
        one_of(self, "posterior_optimiser", ("adam", "sgd"))
        one_of(self, "gradient_keep", ("all", "winner", "threshold"))
        one_of(self, "loss_over", ("task", "seen"))
        one_of(self, "protect", ("edges", "none"))
        one_of(self, "inherit", ("previous", "none"))
        one_of(self, "grow", ("auto", "never"))
        for name in ("compete", "reuse", "grow_below", "gradient_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise RivalsError(f"{name} is {getattr(self, name)}, but is a share from 0 to 1.")
        for name in ("temperature", "temperature_end", "posterior_lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise RivalsError(f"{name} is {getattr(self, name)}, but must be positive.")
        for name in ("spread", "prefer_free"):
            if not 0 <= getattr(self, name) < math.inf:
                raise RivalsError(f"{name} is {getattr(self, name)}, but must not be negative.")
        if self.way == "trial" and self.reuse and not self.compete:
            raise RivalsError(
                "way=trial needs steps in which newcomers can move; set compete, for instance 0.2."
            )
        if self.contenders < 0:
            raise RivalsError(f"contenders is {self.contenders}; use 0 for all units of a block.")
        if not 1 <= self.live_end <= self.live:
            raise RivalsError(
                f"live goes from {self.live} to {self.live_end}; it falls, and ends at 1 or above."
            )
        if self.per_example and self.way != "relaxed":
            raise RivalsError(f"per_example needs way=relaxed, but way is '{self.way}'.")
