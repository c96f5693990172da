"""Testing a model on pictures it has not seen: accuracy with its interval, class by class."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Z = 1.959964  # of a 95 % interval


class CountedPictures:
    """What follows from how many pictures there were, and how many were right."""

    images: int
    right: int

    @property
    def accuracy(self) -> float:
        """Percent."""
        return 100 * self.right / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """95 % (Wilson)."""
        return wilson(self.right, self.images)


@dataclass(frozen=True)
class ClassResult(CountedPictures):
    """How many pictures of a class were right."""

    label: str
    images: int
    right: int


@dataclass(frozen=True)
class TestReport(CountedPictures):
    """What a test found. Accuracies are percent; intervals are 95 % (Wilson).

    `task` is the task that was given, or "" where the model had to find it. `given_task` is the
    accuracy with the task known, where all tested classes belong to one task.

    >>> from rivals.model.testing import report
    >>> found = report(["cat", "cat", "dog"], ["cat", "dog", "dog"], task="pets", given_task=None)
    >>> print(found)
    66.7 % (20.8 to 93.9, 3 pictures, task known)
    >>> found.labels, found.confusion  # rows: true classes, columns: answers
    (('cat', 'dog'), ((1, 1), (0, 1)))
    >>> [(each.label, each.accuracy) for each in found.per_class]
    [('cat', 50.0), ('dog', 100.0)]
    """

    __test__ = False  # not a test of pytest

    task: str
    images: int
    right: int
    per_class: tuple[ClassResult, ...]
    labels: tuple[str, ...]  # rows and columns of `confusion`
    confusion: tuple[tuple[int, ...], ...]  # confusion[true][predicted]
    given_task: float | None = None
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        low, high = self.interval
        known = "task known" if self.task else "task unknown"
        return f"{self.accuracy:.1f} % ({low:.1f} to {high:.1f}, {self.images} pictures, {known})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "task": self.task or None,
            "images": self.images,
            "right": self.right,
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "accuracy_task_known": self.given_task,
            "per_class": {
                each.label: {
                    "images": each.images, "right": each.right, "accuracy": each.accuracy,
                    "interval": list(each.interval),
                }
                for each in self.per_class
            },
            "labels": list(self.labels),
            "confusion": [list(row) for row in self.confusion],
            "left_out": list(self.left_out),
        }  # fmt: skip

    def plot(self, path: str) -> None:
        """Save the confusion matrix as a picture (PNG, SVG or PDF by the name's ending)."""
        from rivals.experiment.report.confusion_plot import save_confusion

        save_confusion(self.labels, self.confusion, path)


def report(
    truth: Sequence[str], predicted: Sequence[str], task: str, given_task: float | None,
    left_out: Sequence[str] = (),
) -> TestReport:  # fmt: skip
    """A report from the true and the predicted class of each picture."""
    tested = list(dict.fromkeys(truth))
    labels = (*tested, *sorted(set(predicted) - set(tested)))
    pairs = Counter(zip(truth, predicted, strict=True))
    counts = Counter(truth)
    per_class = tuple(ClassResult(each, counts[each], pairs[each, each]) for each in tested)
    confusion = tuple(tuple(pairs[true, guess] for guess in labels) for true in labels)
    right = sum(each.right for each in per_class)
    return TestReport(
        task, len(truth), right, per_class, labels, confusion, given_task, tuple(left_out)
    )


def wilson(right: int, images: int) -> tuple[float, float]:
    """The 95 % interval of a share, in percent."""
    share, z2 = right / images, Z * Z / images
    centre = (share + z2 / 2) / (1 + z2)
    half = Z * math.sqrt(share * (1 - share) / images + z2 / (4 * images)) / (1 + z2)
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)


def plus_minus(accuracy: float, images: int) -> str:
    """An accuracy with half the width of its 95 % interval, for example `75.0 % ± 9.3`.

    >>> plus_minus(75.0, 80)
    '75.0 % ± 9.3'
    """
    if not images:
        return f"{accuracy:.1f} %"
    low, high = wilson(round(accuracy * images / 100), images)
    return f"{accuracy:.1f} % ± {(high - low) / 2:.1f}"
