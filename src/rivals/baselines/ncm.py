"""NCM: the nearest class mean on frozen features (Mensink et al. 2013; Rebuffi et al. 2017).

    class of x = argmax over c of cos(φ(x), μ_c),   or argmin of ‖φ(x) − μ_c‖

Both are linear in φ(x): ⟨φ, μ/‖μ‖⟩, since ‖φ‖ is the same for all classes, and ⟨φ, μ⟩ − ½‖μ‖².

Deviations from the papers
- φ is the ancestor, not a network that the first task trained.
- μ is the mean of the features, not of their directions, which are no better on validation images.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import nn

from rivals.baselines.frozen_method import FrozenMethod, FrozenSettings, unless_empty
from rivals.learn.method import methods


class NCMSettings(FrozenSettings):
    """What near means."""

    metric: Literal["cosine", "euclidean"] = Field(
        "cosine", description="Near by direction, or by distance."
    )


@methods.register("ncm")
class NCM(FrozenMethod):
    """Keeps the mean of each class."""

    settings: NCMSettings
    settings_class = NCMSettings

    def heads(self, task: str) -> dict[str, nn.Sequential]:
        count, means = self.exact_means(self.sums)
        if self.settings.metric == "cosine":
            means = F.normalize(means, dim=1)
            shift = torch.zeros_like(means[:, 0])
        else:
            shift = -0.5 * means.square().sum(1)
        return self.split(means, unless_empty(count, shift))
