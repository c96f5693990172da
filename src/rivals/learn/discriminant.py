"""A head in closed form: the linear discriminant of features, nothing is trained.

    score_c(x) = w_c · x + b_c,   w_c = Σ⁻¹ μ_c,   b_c = −½ μ_c · Σ⁻¹ μ_c

μ_c is the mean of a class and Σ the covariance around these means. A few pictures show little of a
covariance, so that of other classes stands in for `PRIOR` pictures. What all scores have in common
is taken out: it says nothing, and small scores lose less in rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

PRIOR = 100  # pictures that the covariance of other classes counts as
RIDGE = 1e-3  # of the mean variance, added to every variance


def discriminant(features: Tensor, labels: Tensor, within: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (classes, d) and bias (classes,) of the linear discriminant.

    Args:
        features: (n, d).
        labels: (n,), from 0 to classes − 1, each of them at least once.
        within: (d, d), the covariance of features around the means of classes seen before.
    """
    rows = features.double()
    classes = int(labels.max()) + 1
    means = torch.stack([rows[labels == number].mean(0) for number in range(classes)])
    apart = rows - means[labels]
    freedom = max(0, len(rows) - classes)
    covariance = (apart.T @ apart + PRIOR * within.double()) / (freedom + PRIOR)
    ridge = RIDGE * float(covariance.diagonal().mean())
    covariance += ridge * torch.eye(len(covariance), dtype=covariance.dtype)
    return linear_scores(means, covariance)


def linear_scores(means: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Weight (classes, d) and bias (classes,) from means (classes, d) and Σ, both float64."""
    weight = torch.linalg.solve(covariance, means.T).T
    bias = -0.5 * (weight * means).sum(1)
    return (weight - weight.mean(0)).float(), (bias - bias.mean()).float()
