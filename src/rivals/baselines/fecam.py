"""FeCAM: a covariance for every class of frozen features (Goswami et al. 2023).

    class of x = argmin over c of (f − μ_c)ᵀ R_c⁻¹ (f − μ_c),   f = φ(x) ** ½

f is Tukey's transform of the features. The covariance of a class is shrunk, V its mean variance and
W its mean covariance, and then made a correlation, so that distances of classes compare:

    Σ ← Σ + γ₁ V I + γ₂ W (1 − I),   R_ij = Σ_ij / √(Σ_ii Σ_jj)

With R = LLᵀ the distance is ‖L⁻¹(f − μ)‖²: a linear layer, squares, and a sum.

Deviations from the official code
- μ_c is the mean of the transformed features, as Σ is; there it is the transform of the mean.
- Features and means are not scaled to length 1: on validation images that cost two points.
- Every task is treated alike; there the first task is classified by Euclidean distance.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from rivals.baselines.dense_method import default
from rivals.baselines.frozen_method import FrozenMethod, FrozenSettings, exact, unless_empty
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.nn.cut import linear
from rivals.nn.plain_layers import Square

LEAST = 1e-6  # variance: of one picture, or of features that never change, there is none
PICTURES = 8  # whose products of features, d² numbers each, are in memory together


class FeCAMSettings(FrozenSettings):
    """How the covariances are shrunk."""

    power: float = default(FrozenSettings, "power", 0.5)
    shrinkage: float = Field(
        1.0, gt=0, le=1e4, description="Added to variances, in units of the mean variance (γ₁)."
    )
    off_diagonal: float = Field(
        1.0, ge=0, le=1e4, description="Added to covariances, in units of the mean one (γ₂)."
    )

    def check(self) -> None:
        super().check()
        if self.off_diagonal > self.shrinkage:
            raise RivalsError(
                f"off_diagonal is {self.off_diagonal:g}, but must be at most shrinkage "
                f"({self.shrinkage:g}): otherwise a covariance may have no inverse."
            )


@methods.register("fecam")
class FeCAM(FrozenMethod):
    """Keeps the mean and the covariance of each class."""

    settings: FeCAMSettings
    settings_class = FeCAMSettings

    def empty_sums(self, classes: int) -> dict[str, Tensor]:
        squares = torch.zeros(classes, self.width, self.width)
        return {**super().empty_sums(classes), "squares": squares}

    def add(self, rows: Tensor, labels: Tensor, task: str) -> None:
        super().add(rows, labels, task)
        squares = self.sums[task].to_dict()["squares"]
        for some, own in zip(rows.split(PICTURES), labels.split(PICTURES), strict=True):  # type: ignore[no-untyped-call]
            squares.index_add_(0, own, torch.bmm(some.unsqueeze(2), some.unsqueeze(1)))

    def heads(self, task: str) -> dict[str, nn.Sequential]:
        return {task: self.distances(task)}

    def forget_heads(self, task: str) -> None:
        """A class owes nothing to others, so the heads of other tasks stay."""
        self._heads.pop(task, None)

    def distances(self, task: str) -> nn.Sequential:
        """−½ the squared distances to the classes of `task`: (n, d) → (n, c · d) → (n, c)."""
        count, means = self.exact_means([task])
        inverse = torch.linalg.inv(torch.linalg.cholesky(self.correlations(task, count, means)))
        shift = -torch.einsum("cij,cj->ci", inverse, means)
        summing = -0.5 * torch.eye(len(count)).to(means).repeat_interleave(self.width, 1)
        return nn.Sequential(
            linear(inverse.flatten(0, 1).float(), shift.flatten().float()),
            Square(),
            linear(summing.float(), unless_empty(count, torch.zeros_like(means[:, 0])).float()),
        )

    def correlations(self, task: str, count: Tensor, means: Tensor) -> Tensor:
        """R of each class, shrunk: (c, d, d)."""
        squares, number = exact(self.sums[task].to_dict()["squares"]), count[:, None, None]
        apart = squares - number * means.unsqueeze(2) * means.unsqueeze(1)
        return correlation(
            apart / (number - 1).clamp(min=1), self.settings.shrinkage, self.settings.off_diagonal
        )

    def retained(self, task: str) -> int:
        """The last layer sums over each class by itself; its zeros do not count."""
        classes = len(self.known[task].classes)
        whole = sum(p.numel() for p in self.ticket(task).parameters())
        return whole - classes * (classes - 1) * self.width


def correlation(covariance: Tensor, variances: float, others: float) -> Tensor:
    """Covariances (c, d, d), shrunk by γ₁ = `variances` and γ₂ = `others`, as correlations."""
    width = covariance.shape[-1]
    same = torch.eye(width).to(covariance)
    diagonal = covariance.diagonal(dim1=1, dim2=2)
    total = diagonal.sum(1)
    mean = (total / width)[:, None, None]
    off = ((covariance.sum((1, 2)) - total) / max(1, width * (width - 1)))[:, None, None]
    shrunk = covariance + (variances * mean + LEAST) * same + others * off * (1 - same)
    deviation = shrunk.diagonal(dim1=1, dim2=2).sqrt()
    return shrunk / (deviation.unsqueeze(2) * deviation.unsqueeze(1))
