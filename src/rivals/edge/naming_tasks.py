"""Which task does a picture belong to? One discriminant over the classes of all tasks, in numpy.

rivals/naming/shared_features.py is the same rule in torch, and says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rivals.edge.class_sums import (
    Array,
    ClassSums,
    linear_head,
    log_softmax,
    scores_of,
    shared_covariance,
)

SCALE = np.float32(0.15)  # of the scores
PRIOR = 300.0  # pictures that the ancestor's covariance counts as
PLAIN = 2.0  # standard deviation of the pixels of a picture that shows nothing, of 255


def name_tasks(
    features: Array, scores: Sequence[Array], sums: Sequence[ClassSums], within: Array
) -> Array:
    """The place of the task of every picture: (n,).

    Args:
        features: Of the ancestor, (n, d).
        scores: Of the classes of every task by its own head, (n, classes) each.
        sums: Of the ancestor's features of the pictures that every task was learned from.
        within: The covariance of the ancestor's own classes, (d, d).
    """
    means = np.concatenate([each.means for each in sums])
    shared = SCALE * scores_of(features, linear_head(means, shared_covariance(sums, within, PRIOR)))
    ends = np.cumsum([len(each.means) for each in sums])
    of_task = [log_sum(part) for part in np.split(shared, ends[:-1], axis=1)]
    best = [log_softmax(own).max(1) for own in scores]
    found: Array = np.stack([t + b for t, b in zip(of_task, best, strict=True)]).argmax(0)
    return found


def log_sum(scores: Array) -> Array:
    """The logarithm of the sum of exponentials: (n,)."""
    most = scores.max(1)
    found: Array = most + np.log(np.exp(scores - most[:, None]).sum(1))
    return found


def shows_nothing(images: Array) -> Array:
    """Which raw images (n, channels, height, width) are of one colour: (n,)."""
    flat = images.reshape(*images.shape[:2], -1).astype(np.float32)
    found: Array = flat.std(2, ddof=1).max(1) < PLAIN
    return found
