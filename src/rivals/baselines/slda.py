"""SLDA: streaming linear discriminant analysis on frozen features (Hayes and Kanan 2020).

    score_c(x) = ⟨Λμ_c, φ(x)⟩ − ½ ⟨Λμ_c, μ_c⟩,   Λ = [(1 − ε) Σ + ε I]⁻¹

μ_c is the mean of a class, Σ the covariance around these means, over all classes of all tasks. Both
follow from sums of φ and of φφᵀ, so a new batch costs as much as it has pictures.

Deviations from the paper
- Σ is that of all pictures at once. The paper's update weighs a picture by the number of all before
  it, not of those of its class, so its Σ depends on their order.
- Σ begins as nothing; the paper fits it to the pictures of a first, larger set of classes.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from rivals.baselines.frozen_method import FrozenMethod, FrozenSettings, exact, unless_empty
from rivals.learn.method import methods
from rivals.naming.discriminant import head


class SLDASettings(FrozenSettings):
    """How far the covariance is drawn towards the identity."""

    shrinkage: float = Field(
        1e-4, gt=0, lt=1, description="The share of the identity in the covariance."
    )


@methods.register("slda")
class SLDA(FrozenMethod):
    """Keeps the mean of each class, and one covariance for all."""

    settings: SLDASettings
    settings_class = SLDASettings
    keeps_products = True

    def heads(self, task: str) -> dict[str, nn.Sequential]:
        count, means = self.exact_means(self.sums)
        between = (means * count.to(means).unsqueeze(1)).T @ means
        within = (exact(self.products) - between) / count.sum().clamp(min=1)
        share = self.settings.shrinkage
        covariance = (1 - share) * within + share * torch.eye(self.width).to(within)
        weight, bias = head(means, covariance)
        return self.split(weight, unless_empty(count, bias))
