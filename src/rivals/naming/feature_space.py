"""The space in which tasks are named: an ancestor's features, and what is usual in it.

    features ─► square roots ─► rows ─► nearer to a class than to pictures of any kind?

The features of a ReLU network are skewed, and their roots are far more like a normal density. The
covariance around class means and the density of pictures of any kind, the background, come with a
shipped ancestor: ancestors/background.py makes them. Of other ancestors neither is known. There the
features are taken as they are, and distances are not compared with a background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import safetensors
import safetensors.numpy

from rivals.ancestors.shipped_file import shipped_background
from rivals.errors import RivalsError
from rivals.naming.class_sums import (
    PRIOR,
    RIDGE,
    Array,
    ClassSums,
    LinearHead,
    shared_covariance,
    symmetric,
)

BACKGROUND = ("within", "mean", "covariance")  # what the file of a background holds


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """What is known of the features that all tasks share, before any task."""

    within: Array  # (d, d): the covariance around class means; or (1,), one variance for all
    rooted: bool = False
    mean: Array | None = None  # (d,), of pictures of any kind
    covariance: Array | None = None  # (d, d), of these
    ridge: float = RIDGE  # of the mean variance, added to every variance

    @classmethod
    def of_background(cls, kept: Mapping[str, Array], ridge: float = RIDGE) -> FeatureSpace:
        """With what the file of a background holds; a ValueError is its damage."""
        if set(kept) != set(BACKGROUND) or kept["mean"].ndim != 1:
            raise ValueError("holds something else than a background")
        width = len(kept["mean"])
        half = (width * (width + 1) // 2,)
        if any(kept[name].shape != half for name in ("within", "covariance")):
            raise ValueError("has covariances of an impossible shape")
        found = [symmetric(kept[name], width) for name in ("within", "covariance")]
        space = cls(found[0], True, kept["mean"].astype(np.float64), found[1], ridge)
        for each in (space.mean, *found):
            if each is None or not np.isfinite(each).all():
                raise ValueError("has numbers that are not finite")
        try:
            for each in found:
                np.linalg.cholesky(_wider(each, ridge))
        except np.linalg.LinAlgError as error:
            raise ValueError("has a covariance that is none") from error
        return space

    def rows(self, features: Array) -> Array:
        """What statistics are of: (n, d) in float64."""
        exact = features.astype(np.float64)
        return np.sqrt(exact.clip(min=0)) if self.rooted else exact

    @cached_property
    def background(self) -> Array:
        """The inverse of the covariance of pictures of any kind: (d, d); (1,), 0: not known."""
        if self.covariance is None:
            return np.zeros(1)
        inverse: Array = np.linalg.inv(_wider(self.covariance, self.ridge))
        return inverse

    def spread(self, sums: Sequence[ClassSums]) -> Array:
        """The covariance around the means of all these classes: (d, d), or (1,)."""
        return shared_covariance(sums, self.within, PRIOR, self.ridge)

    def precision(self, sums: ClassSums) -> Array:
        """The inverse of the covariance around the class means of a task: (d, d), or (1,)."""
        known = sums if self.within.ndim == 2 else sums.without_scatter()
        spread = self.spread([known])
        inverse: Array = 1 / spread if spread.ndim == 1 else np.linalg.inv(spread)
        return inverse

    @property
    def centre(self) -> Array:
        """What rows are taken from, so that little is lost in rounding: (d,), or (1,)."""
        return np.zeros(1) if self.mean is None else self.mean

    def closeness(self, means: Array, precision: Array) -> LinearHead:
        """Weight (classes, d) and bias (classes,) of how close rows less the centre are to means.

        Less their squares it is the squared Mahalanobis distance, negative; it is twice the score
        of a linear discriminant.
        """
        apart = means - self.centre
        weight = apart * precision if precision.ndim == 1 else apart @ precision
        return 2 * weight, -(weight * apart).sum(1)

    def measures(self, apart: Array, nearest: Array, precision: Array) -> Array:
        """How familiar rows less the centre (n, d) look, measured in two ways: (n, 2).

        Pictures of no kind are far from every class, and from the background, too. Pictures of
        other kinds are nearer to the background: there the distance from it is taken off.
        `nearest` (n,) is the closeness to the nearest mean.
        """
        near = nearest - squares(apart, precision)
        return np.stack([near, near + squares(apart, self.background)], 1)


def squares(rows: Array, by: Array) -> Array:
    """Rows (n, d) squared by a matrix (d, d) or a number (1,): (n,)."""
    found: Array = ((rows * by if by.ndim == 1 else rows @ by) * rows).sum(1)
    return found


@cache
def shipped_space(name: str) -> FeatureSpace:
    """Of an ancestor that comes with the package."""
    data = shipped_background(name)
    try:
        return FeatureSpace.of_background(safetensors.numpy.load(data))
    except (safetensors.SafetensorError, ValueError) as error:
        raise RivalsError(
            f"The background of the ancestor '{name}' is damaged: it {error}; install rivals again."
        ) from error


def _wider(covariance: Array, ridge: float) -> Array:
    """A covariance that can be solved by, whatever rounding did to it."""
    exact = covariance.astype(np.float64)
    return exact + ridge * float(exact.diagonal().mean()) * np.eye(len(exact))
