"""A head in closed form, in numpy: means, counts and scatter of features, and what follows.

What it all means, and why, stands in rivals/naming/discriminant.py; a test compares the two. Means
and scatter have 64 bits here and 16 where they are stored, and what answers is computed from those
that are stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LinearHead = tuple[Array, Array]  # weight (classes, d) and bias (classes,)
PRIOR = 300.0  # pictures that the covariance of other classes counts as, where nothing chose it
RIDGE = 1e-3  # of the mean variance, added to every variance
DIRECTIONS = 16  # of a density of few numbers
SHRINK = 0.03  # of the mean variance, added to every variance of such a density
FLOOR = 1 / (12 * 255**2)  # the variance that rounding a pixel to a byte makes
LEVELS = 201  # of familiarity that are kept


@dataclass(frozen=True)
class ClassSums:
    """What a linear discriminant needs of the features of pictures."""

    means: Array  # (classes, d), float64
    counts: Array  # (classes,), float64
    scatter: Array | None  # (d, d), float64: around the means, summed; None: too few pictures

    @classmethod
    def of(cls, features: Array, labels: Array, classes: int) -> ClassSums:
        """Of features (n, d) with labels (n,); the mean of a class without pictures is 0."""
        rows = features.astype(np.float64)
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        means = np.zeros((classes, rows.shape[1]))
        np.add.at(means, labels, rows)
        means /= counts.clip(min=1)[:, None]
        apart = rows - means[labels]
        return cls(means, counts, apart.T @ apart)

    @property
    def freedom(self) -> float:
        """The number of pictures that a covariance is known from; 0 without a scatter."""
        return 0.0 if self.scatter is None else max(0.0, float(self.counts.sum() - len(self.means)))

    def without_scatter(self) -> ClassSums:
        return replace(self, scatter=None)

    def join(self, other: ClassSums) -> ClassSums:
        """The sums of both samples together; they have the same classes."""
        counts = self.counts + other.counts
        share = (other.counts / counts)[:, None]
        apart = other.means - self.means
        scatter = None
        if self.scatter is not None and other.scatter is not None:
            between = (self.counts[:, None] * share * apart).T @ apart
            scatter = self.scatter + other.scatter + between
        return ClassSums(self.means + share * apart, counts, scatter)

    def stored(self) -> dict[str, Array]:
        """As arrays for a file: 16 bits a mean; of the covariance, where there is one, one half."""
        kept: dict[str, Array] = {"means": self.means.astype(np.float16)}
        kept["counts"] = self.counts.astype(np.int32)
        if self.scatter is not None:
            half = self.scatter[np.triu_indices(len(self.scatter))] / max(1.0, self.freedom)
            kept["covariance"] = half.astype(np.float16)
        return kept

    @classmethod
    def from_stored(cls, kept: Mapping[str, Array]) -> ClassSums:
        found = cls(kept["means"].astype(np.float64), kept["counts"].astype(np.float64), None)
        if "covariance" in kept:
            whole = symmetric(kept["covariance"], found.means.shape[1])
            found = replace(found, scatter=whole)
            found = replace(found, scatter=whole * max(1.0, found.freedom))
        return found


def symmetric(half: Array, width: int) -> Array:
    """(d, d) in float64, of which the rows of the upper triangle are given, one by one."""
    whole = np.zeros((width, width))
    rows, columns = np.triu_indices(width)
    whole[rows, columns] = whole[columns, rows] = half
    return whole


def shared_covariance(
    sums: Sequence[ClassSums], within: Array, prior: float, ridge: float = RIDGE
) -> Array:
    """Σ of all these classes, `within` counting as much as `prior` pictures: (d, d), or (1,).

    `ridge` of the mean variance is added to every variance.
    """
    if within.ndim == 1:
        if prior == 0 or all(each.scatter is None for each in sums):
            return within.astype(np.float64)
        within = within * np.eye(sums[0].means.shape[1])
    if prior == 0:
        return np.array([within.diagonal().mean(dtype=np.float64)])
    whole, freedom = prior * within.astype(np.float64), prior
    for each in sums:
        if each.scatter is not None:
            whole, freedom = whole + each.scatter, freedom + each.freedom
    whole = whole / freedom
    wider = ridge * float(whole.diagonal().mean()) or RIDGE  # one picture a class: no variance
    return whole + wider * np.eye(len(whole))


def linear_head(means: Array, spread: Array) -> LinearHead:
    """Weight (classes, d) and bias (classes,) for means (classes, d) and Σ, (d, d) or (1,)."""
    weight = means / spread if spread.ndim == 1 else np.linalg.solve(spread, means.T).T
    bias = -0.5 * (weight * means).sum(1)
    return (weight - weight.mean(0)).astype(np.float32), (bias - bias.mean()).astype(np.float32)


def scores_of(rows: Array, head: LinearHead) -> Array:
    """(n, classes) for rows (n, d)."""
    weight, bias = head
    found: Array = rows @ weight.T + bias
    return found


def log_softmax(scores: Array) -> Array:
    apart: Array = scores - scores.max(1, keepdims=True)
    found: Array = apart - np.log(np.exp(apart).sum(1, keepdims=True))
    return found


# Densities: rivals/naming/gaussian.py -------------------------------------------------------------


def density_of(means: Array, spread: Array) -> dict[str, Array]:
    """The normal density with these means and all of this covariance, (d, d) or (1,)."""
    means = means.astype(np.float32)
    if spread.ndim == 1:
        none: Array = np.empty((means.shape[1], 0), np.float32)
        rest: Array = spread.astype(np.float32)
        return {"means": means, "directions": none, "variances": none[0], "rest": rest}
    return _few(means, spread, 0.0, len(spread) - 1)


def fitted_density(rows: Array, labels: Array) -> dict[str, Array]:
    """A mean for each label, and the widest directions around them, of rows (n, d)."""
    means = np.stack([rows[labels == label].mean(0) for label in np.unique(labels)])
    apart = (rows - means[labels]).astype(np.float64)
    covariance = apart.T @ apart / len(rows)
    extra = SHRINK * float(covariance.diagonal().mean()) + FLOOR
    return _few(means.astype(np.float32), covariance, extra, DIRECTIONS)


def _few(means: Array, covariance: Array, extra: float, most: int) -> dict[str, Array]:
    variances, directions = np.linalg.eigh(covariance)  # ascending
    variances = variances.clip(min=0) + extra
    split = len(variances) - min(most, len(variances) - 1)
    return {
        "means": means,  # (labels, d)
        "directions": np.ascontiguousarray(directions[:, split:], np.float32),  # (d, k)
        "variances": variances[split:].astype(np.float32),  # (k,)
        "rest": np.array([variances[:split].mean()], np.float32),
    }


def log_density(rows: Array, kept: Mapping[str, Array]) -> Array:
    """log N(row; nearest mean, covariance) for rows (n, d): (n,)."""
    rest, variances, width = kept["rest"], kept["variances"], kept["means"].shape[1]
    nearest = np.full(len(rows), np.inf, np.float32)
    for mean in kept["means"]:
        apart = rows - mean
        along = apart @ kept["directions"]
        across = (np.square(apart).sum(1) - np.square(along).sum(1)).clip(min=0)
        squared = (np.square(along) / variances).sum(1) + across / rest
        nearest = np.minimum(nearest, squared)
    volume = np.log(variances).sum() + (width - len(variances)) * np.log(rest)
    found: Array = -(nearest + volume + np.float32(width * math.log(2 * math.pi))) / 2
    return found


def levels_of(densities: Array) -> Array:
    """Levels from the least familiar picture to the most: (LEVELS,)."""
    return np.quantile(densities, np.linspace(0, 1, LEVELS)).astype(np.float32)
