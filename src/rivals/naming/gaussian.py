"""Normal densities in few numbers: means, the widest directions, one variance for all the others.

This is probabilistic principal component analysis (Tipping and Bishop, 1999): between a diagonal
covariance, which misses how coordinates move together, and a full one of d² numbers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DIRECTIONS = 16
SHRINK = 0.03  # of the mean variance, added to every variance: few examples show too little of it
FLOOR = 1 / (12 * 255**2)  # the variance that rounding a pixel to a byte makes


def fit(rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """A mean for each label that occurs, and one covariance around them, of rows (n, d)."""
    rows, labels = rows.cpu(), labels.cpu()  # not every device has the 64 bits of a covariance
    found, members = torch.unique(labels, return_inverse=True)
    means = torch.stack([rows[members == number].mean(0) for number in range(len(found))])
    apart = (rows - means[members]).double()
    covariance = apart.T @ apart / len(rows)
    extra = SHRINK * float(covariance.diagonal().mean()) + FLOOR
    return _few(means, covariance, extra)


def join(one: dict[str, Tensor], other: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """The density of two samples together, `share` of which is the other's; of one mean each."""
    one, other = ({name: t.cpu() for name, t in kept.items()} for kept in (one, other))
    means = torch.lerp(one["means"], other["means"], share)
    whole = torch.zeros(means.shape[1], means.shape[1], dtype=torch.float64)
    for kept, weight in ((one, 1 - share), (other, share)):
        apart = (kept["means"] - means).double()
        whole += weight * (full_covariance(kept) + apart.T @ apart)
    return _few(means, whole, 0.0)


def of_covariance(means: Tensor, covariance: Tensor) -> dict[str, Tensor]:
    """The density with these means and all of this covariance, which is not singular.

    A covariance (1,) is one variance for all directions.
    """
    if covariance.dim() == 1:
        directions = means.new_empty(means.shape[1], 0)
        rest, variances = covariance.float(), means.new_empty(0)
        return {"means": means, "directions": directions, "variances": variances, "rest": rest}
    return _few(means, covariance, 0.0, len(covariance) - 1)


def full_covariance(kept: dict[str, Tensor]) -> Tensor:
    """(d, d): the covariance that a density has."""
    names = ("directions", "variances", "rest")
    directions, variances, rest = (kept[name].cpu().double() for name in names)
    along = (directions * (variances - rest)) @ directions.T
    return along + rest * torch.eye(len(directions), dtype=torch.float64)


def _few(
    means: Tensor, covariance: Tensor, extra: float, most: int = DIRECTIONS
) -> dict[str, Tensor]:
    """The widest directions of a covariance (d, d), `extra` being added to every variance."""
    variances, directions = torch.linalg.eigh(covariance)  # ascending
    variances = variances.clamp(min=0) + extra
    few = min(most, len(variances) - 1)
    split = len(variances) - few
    return {
        "means": means,  # (labels, d)
        "directions": directions[:, split:].float().contiguous(),  # (d, k)
        "variances": variances[split:].float(),  # (k,)
        "rest": variances[:split].mean().float().view(1),
    }


def log_density(rows: Tensor, kept: dict[str, Tensor]) -> Tensor:
    """log N(row; nearest mean, covariance) for rows (n, d): (n,), where the rows are."""
    nearest = squared_distances(rows, kept).min(1).values
    return -(nearest + log_volume(kept).to(rows.device)) / 2


def squared_distances(rows: Tensor, kept: dict[str, Tensor]) -> Tensor:
    """Squared Mahalanobis distances of rows (n, d) from every mean: (n, labels)."""
    kept = {name: tensor.to(rows.device) for name, tensor in kept.items()}
    apart = rows.unsqueeze(1) - kept["means"]  # (n, labels, d)
    along = apart @ kept["directions"]  # (n, labels, k)
    across = (apart.square().sum(2) - along.square().sum(2)).clamp(min=0)
    return (along.square() / kept["variances"]).sum(2) + across / kept["rest"]


def log_volume(kept: dict[str, Tensor]) -> Tensor:
    """log |2π Σ|, which with a squared distance makes −2 log N: (1,)."""
    rest, variances, width = kept["rest"], kept["variances"], kept["means"].shape[1]
    free = width - len(variances)
    return variances.log().sum() + free * rest.log() + width * math.log(2 * math.pi)
