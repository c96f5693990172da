"""How sure an answer may be: what scores are multiplied with before they become probabilities.

A discriminant would be right about its probabilities if features were normal with one covariance.
They are not, so scores are multiplied with a temperature under which the right classes of pictures
that were left out are most probable. Some pictures are easy and others are hard, and nobody says
which: a probability is the mean of two, one of scores SPREAD times as large, one of scores SPREAD
times as small. That leaves the order of the classes as it is.
"""

from __future__ import annotations

import numpy as np

from rivals.naming.class_sums import Array, log_softmax

SPREAD = 1.8  # chosen on training images of CIFAR-100
TEMPERATURES = [2 ** (step / 8) for step in range(-64, 9)]  # from 1/256 to 2
USUAL, PICTURES = 0.2, 30.0  # a temperature that is known before, and the pictures it counts as
BINS = 15


def best_temperature(scores: Array, labels: Array) -> float:
    """What to multiply scores (n, classes) with, so that labels (n,) are most probable."""
    places = np.arange(len(labels))

    def loss(temperature: float) -> float:
        return -float(log_softmax(temperature * scores)[places, labels].mean())

    return min(TEMPERATURES, key=loss)


def joint_temperature(temperatures: Array, pictures: Array) -> float:
    """Of several tasks together, which so many pictures know of."""
    weights = np.append(pictures, PICTURES)
    logs = np.log(np.append(temperatures, USUAL))
    return float(np.exp((weights * logs).sum() / weights.sum()))


def spread_softmax(scores: Array) -> Array:
    """Probabilities (n, classes) of scores that were multiplied with their temperature."""
    sure, unsure = (np.exp(log_softmax(scores * by)) for by in (SPREAD, 1 / SPREAD))
    return (sure + unsure) / 2


def calibration_error(confidence: Array, right: Array) -> float:
    """How far confidences (n,) are from the share that is right, in percent (Naeini, 2015).

    >>> import numpy as np
    >>> float(calibration_error(np.full(10, 0.75), np.arange(10) < 5))
    25.0
    """
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    apart = np.bincount(bins, confidence - right, minlength=BINS)
    return 100 * float(np.abs(apart).sum()) / len(right)
