"""One linear discriminant over the classes of all tasks, made of what is kept of each, in numpy.

    p(class) = p(task) · p(class in it)      by the discriminant, and by the ticket of the task

How familiar a picture looks says the task that is named, by the distance from its nearest class
mean beside that from pictures of any kind. It is a share: of the pictures that the task was learned
from, so many look less familiar. `shared_features.py` computes the same with torch, from
the same arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rivals.naming.class_sums import Array, LinearHead, linear_head
from rivals.naming.confidence import joint_temperature, spread_softmax
from rivals.naming.feature_space import FeatureSpace
from rivals.naming.task_statistics import TaskStatistics, familiarity_of

NEVER = -1e9  # a score
LEAST = 1e-30  # probability of a task, so that its logarithm is finite


@dataclass(frozen=True, eq=False)
class JointHead:
    """Arrays that name the tasks of rows; all of one order of tasks, and of classes in them."""

    space: FeatureSpace
    centre: Array  # (d,) or (1,)
    weight: Array  # (classes, d): scores of the discriminant, of rows less the centre
    bias: Array  # (classes,)
    close: LinearHead  # the same: how close rows are to the means, by the metric of their task
    metrics: Array  # (k, d, d) or (k, 1): to measure with, the first one where a task has none
    metric: Array  # (tasks,): which of these is that of a task
    levels: Array  # (tasks, LEVELS): how familiar the pictures of each look, ascending
    usual: Array  # (tasks, 2, 2): median and spread of each measure of that
    task: Array  # (classes,): the task of each class
    label: Array  # (classes,): its place in the task
    members: Array  # (tasks, most classes): the classes of each; their number where there is none

    @classmethod
    def of(cls, statistics: Sequence[TaskStatistics], space: FeatureSpace) -> JointHead:
        """Of the tasks in their order. The scores are multiplied with their temperature."""
        sums = [each.sums for each in statistics]
        means = np.concatenate([each.means for each in sums])
        weight, bias = linear_head(means - space.centre, space.spread(sums))
        temperature = np.float32(joint_temperature(
            np.array([each.temperature for each in statistics]),
            np.array([each.pictures for each in statistics]),
        ))  # fmt: skip
        own = [number for number, each in enumerate(sums) if each.scatter is not None]
        own = own if space.within.ndim == 2 else []
        metrics = [
            space.precision(each) for each in (sums[0].without_scatter(), *(sums[n] for n in own))
        ]
        metric = np.zeros(len(sums), int)
        metric[own] = np.arange(len(own)) + 1
        near = [
            space.closeness(each.means, metrics[n]) for each, n in zip(sums, metric, strict=True)
        ]
        none = np.concatenate([each.counts for each in sums]) == 0  # such a class is never named
        bias = np.where(none, NEVER, bias).astype(np.float32)
        close = tuple(np.concatenate(each).astype(np.float32) for each in zip(*near, strict=True))
        sizes = np.array([len(each.means) for each in sums])
        label = np.concatenate([np.arange(size) for size in sizes])
        task = np.repeat(np.arange(len(sizes)), sizes)
        members = np.full((len(sizes), sizes.max()), len(means))
        members[task, label] = np.arange(len(means))
        return cls(
            space, space.centre.astype(np.float32), temperature * weight, temperature * bias,
            (close[0], np.where(none, np.float32(NEVER), close[1])),
            np.stack(metrics).astype(np.float32), metric,
            np.stack([each.levels for each in statistics]),
            np.stack([each.usual for each in statistics]), task, label, members,
        )  # fmt: skip

    def rows(self, features: Array) -> Array:
        """Less the centre: (n, d)."""
        return (self.space.rows(features) - self.centre).astype(np.float32)

    def probabilities(self, features: Array, own: Array) -> Array:
        """Of the classes of all tasks: (n, classes).

        Args:
            features: Of the ancestor, (n, d).
            own: Of each class in its own task, by its ticket, (n, classes).
        """
        named = spread_softmax(self.rows(features) @ self.weight.T + self.bias)
        of_task = np.add.reduceat(named, self.members[:, 0], axis=1).clip(min=LEAST)
        found: Array = of_task[:, self.task] * own
        return found

    def familiarity(self, features: Array, which: Array) -> Array:
        """What share of the pictures of a task looks less familiar, for the tasks named: (n,)."""
        rows, (weight, bias) = self.rows(features), self.close
        close = np.pad(rows @ weight.T + bias, ((0, 0), (0, 1)), constant_values=-np.inf)
        nearest = np.take_along_axis(close, self.members[which], 1).max(1)
        measures = np.empty((len(rows), 2))
        for number in np.unique(self.metric[which]):
            own = self.metric[which] == number
            measures[own] = self.space.measures(rows[own], nearest[own], self.metrics[number])
        return share_below(self.levels[which], familiarity_of(measures, self.usual[which]))


def share_below(levels: Array, values: Array) -> Array:
    """Where values (n,) are between the first of their levels (n, LEVELS), 0, and the last, 1.

    What is below them all is below 0.
    """
    last = levels.shape[1] - 1
    place = (levels <= values[:, None]).sum(1)
    ends = (np.take_along_axis(levels, each.clip(0, last)[:, None], 1)[:, 0]
            for each in (place - 1, place))  # fmt: skip
    low, high = ends
    part = (values - low) / np.maximum(high - low, np.float32(1e-12))
    found: Array = ((place - 1 + part) / last).clip(-1, 1)
    return found
