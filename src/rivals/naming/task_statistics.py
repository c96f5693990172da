"""What is kept of a task to name it: class sums in the space of names, and how they answer.

No picture is kept, and nothing is said of another task: a task that is dropped leaves no trace.
Every picture is left out once. Its distance from the mean of the others says how familiar the
pictures of the task look, and scores without it say how sure the discriminant may be.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rivals.naming.class_sums import (
    LEVELS,
    Array,
    ClassSums,
    levels_of,
    symmetric,
)
from rivals.naming.confidence import TEMPERATURES, USUAL, best_temperature
from rivals.naming.feature_space import FeatureSpace

FOLDS = 10
ROUNDED, TINY = 0.02, 1e-12  # of the mean variance, what rounding may take from the smallest one
ROOTED = "rooted_"  # before the names of statistics of roots, beside those of the features
HEAD = ("means", "counts", "covariance")  # statistics that a head in closed form follows from
EVERY_STATISTIC = ("kept.prior", "kept.covariance", f"kept.{ROOTED}covariance")  # a file may have
Kept = TypeVar("Kept")  # an array or a tensor


@dataclass(frozen=True, eq=False)
class TaskStatistics:
    """How the pictures of a task lie in a space of features."""

    sums: ClassSums
    levels: Array  # (LEVELS,): how familiar its pictures look, ascending
    usual: Array  # (2, 2): median and spread of each measure of that
    temperature: float  # of scores of its classes

    @classmethod
    def of(
        cls, features: Array, labels: Array, classes: int, space: FeatureSpace
    ) -> TaskStatistics:
        """Of features (n, d) with labels (n,); a class without pictures is never named."""
        rows = space.rows(features)
        sums = ClassSums.of(rows, labels, classes)
        if space.within.ndim == 1 or sums.freedom < rows.shape[1]:
            sums = sums.without_scatter()
        return cls(sums, *_left_out(rows, labels, sums, space))

    @property
    def pictures(self) -> float:
        return float(self.sums.counts.sum())

    def join(self, other: TaskStatistics) -> TaskStatistics:
        """Of the pictures of both together; they have the same classes."""
        share = other.pictures / (self.pictures + other.pictures)
        levels = self.levels + np.float32(share) * (other.levels - self.levels)
        usual = self.usual + np.float32(share) * (other.usual - self.usual)
        temperature = self.temperature * (other.temperature / self.temperature) ** share
        return TaskStatistics(self.sums.join(other.sums), levels, usual, temperature)

    def with_picture(self, features: Array, label: int, space: FeatureSpace) -> TaskStatistics:
        """With one more picture, of a class that is known or the next one.

        Nothing is left out for it: how its pictures answer stays as it was.
        """
        old, row = self.sums, space.rows(features)
        if label == len(old.counts):
            means = np.concatenate([old.means, row[None]])
            return replace(self, sums=replace(old, means=means, counts=np.append(old.counts, 1.0)))
        means, counts = np.zeros_like(old.means), np.zeros_like(old.counts)
        means[label], counts[label] = row, 1.0
        scatter = None if old.scatter is None else np.zeros_like(old.scatter)
        return replace(self, sums=old.join(ClassSums(means, counts, scatter)))

    def stored(self, space: FeatureSpace) -> dict[str, Array]:
        """As arrays for a file."""
        found = self.sums.stored()
        counts, prefix = found.pop("counts"), ROOTED if space.rooted else ""
        return {
            **{f"{prefix}{name}": each for name, each in found.items()},
            "counts": counts,
            "familiar": self.levels.astype(np.float32),
            "usual": self.usual.astype(np.float32),
            "temperature": np.array([self.temperature], np.float32),
        }

    @classmethod
    def from_stored(cls, kept: Mapping[str, Array], space: FeatureSpace) -> TaskStatistics:
        prefix = ROOTED if space.rooted else ""
        found = {
            name: kept[f"{prefix}{name}"]
            for name in ("means", "covariance")
            if f"{prefix}{name}" in kept
        }
        sums = ClassSums.from_stored({**found, "counts": kept["counts"]})
        return cls(sums, kept["familiar"], kept["usual"], float(kept["temperature"][0]))


def beside_head(kept: Mapping[str, Kept]) -> dict[str, Kept]:
    """What names a task, where a head in closed form has statistics of the features themselves."""
    return {name: each for name, each in kept.items() if name not in HEAD}


def stored_statistics(
    width: int, classes: int, found: Collection[str], rooted: bool, covariance: bool = True
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Types and shapes of what the file of a task has, given the names in it.

    Statistics of roots name it, and where it has a prior, statistics of the features themselves
    make its head in closed form. They are the same where no roots are taken.
    """
    closed = "kept.prior" in found
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "kept.counts": ("I32", (classes,)), "kept.temperature": ("F32", (1,)),
        "kept.familiar": ("F32", (LEVELS,)), "kept.usual": ("F32", (2, 2)),
    }  # fmt: skip
    for prefix in ((ROOTED,) if rooted else ()) + (("",) if closed or not rooted else ()):
        shapes[f"kept.{prefix}means"] = "F16", (classes, width)
        if covariance and f"kept.{prefix}covariance" in found:
            shapes[f"kept.{prefix}covariance"] = "F16", (width * (width + 1) // 2,)
    if closed:
        shapes |= {"kept.prior": ("F32", (1,)), "kept.scale": ("F32", (1,))}
    return shapes


def check_statistics(kept: Mapping[str, Array]) -> None:
    """Refuse statistics that no pictures have; a ValueError."""
    numbers = {name: float(each[0]) for name, each in kept.items() if each.shape == (1,)}
    possible = TEMPERATURES[0] <= numbers["temperature"] <= TEMPERATURES[-1]
    possible = possible and int(kept["counts"].min()) >= 1 and numbers.get("prior", 0.0) >= 0
    if not possible or numbers.get("scale", 1.0) <= 0:
        raise ValueError("has statistics of no pictures")
    if bool((kept["usual"][:, 1] <= 0).any()):
        raise ValueError("has measures that no pictures have")
    if bool((np.diff(kept["familiar"]) < 0).any()):
        raise ValueError("has levels that are not in their order")
    for name, half in kept.items():
        if name.endswith("covariance") and not _is_covariance(half):
            raise ValueError("has a covariance that is none")


def _is_covariance(half: Array) -> bool:
    """Whether one half of a matrix, which was rounded to 16 bits, can be that of a covariance."""
    width = (math.isqrt(8 * len(half) + 1) - 1) // 2
    whole = symmetric(half, width)
    try:
        wider = ROUNDED * whole.diagonal().mean() + TINY
        np.linalg.cholesky(whole + wider * np.eye(width))
    except np.linalg.LinAlgError:
        return False
    return True


def usual_of(measures: Array) -> Array:
    """Median and spread of measures (n, 2), the spread being that below the median: (2, 2)."""
    low, middle = np.quantile(measures, [0.1, 0.5], 0)
    return np.stack([middle, np.maximum(middle - low, 1e-3)], 1).astype(np.float32)


def familiarity_of(measures: Array, usual: Array) -> Array:
    """How familiar pictures look, by the worse of two measures (n, 2): (n,).

    `usual` (n or 1, 2, 2) has median and spread of each.
    """
    found: Array = ((measures - usual[..., 0]) / usual[..., 1]).min(1).astype(np.float32)
    return found


def _left_out(
    rows: Array, labels: Array, sums: ClassSums, space: FeatureSpace
) -> tuple[Array, Array, float]:
    """Levels, what is usual, and the temperature, by statistics of the other folds."""
    fold, apart = _folds(labels, sums.counts), rows - space.centre
    measures, scores = np.zeros((len(rows), 2)), np.zeros((len(rows), len(sums.means)))
    for number in np.unique(fold):
        held = fold == number
        learned = sums
        if number >= 0:
            learned = ClassSums.of(rows[~held], labels[~held], len(sums.means))
            learned = learned if sums.scatter is not None else learned.without_scatter()
        precision = space.precision(learned)
        weight, bias = space.closeness(learned.means, precision)
        close = apart[held] @ weight.T + bias
        close[:, learned.counts == 0] = -np.inf
        measures[held], scores[held] = (
            space.measures(apart[held], close.max(1), precision),
            close / 2,
        )
    tested = fold >= 0
    if not tested.any():
        tested = ~tested
    usual = usual_of(measures[tested])
    levels = levels_of(familiarity_of(measures[tested], usual[None]))
    known = fold[tested][0] >= 0
    return levels, usual, best_temperature(scores[tested], labels[tested]) if known else USUAL


def _folds(labels: Array, counts: Array) -> Array:
    """In which fold every picture is: (n,); −1 for the only picture of a class."""
    found = np.full(len(labels), -1)
    for label in np.flatnonzero(counts > 1):
        members = np.flatnonzero(labels == label)
        found[members] = np.arange(len(members)) % FOLDS
    return found
