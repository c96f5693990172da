"""Testing a model on pictures it has not seen: accuracy with its interval, class by class, and the
pictures that it is most confidently wrong about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.answer import Answer
from rivals.naming.confidence import calibration_error

Z = 1.959964  # of a 95 % interval
MOST_MISTAKES = 100  # that a report keeps


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
class Mistake:
    """A picture that was answered wrongly."""

    picture: str | int  # its path, or its place in a dataset or an array
    truth: str
    answer: str
    task: str  # of the answer
    confidence: float  # of the answer, 0 to 1
    image: NDArray[np.uint8] = field(repr=False, compare=False)  # (channels, height, width)

    def to_dict(self) -> dict[str, Any]:
        return {
            "picture": self.picture, "truth": self.truth, "answer": self.answer,
            "task": self.task, "confidence": self.confidence,
        }  # fmt: skip


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
    wrong: tuple[Mistake, ...] = ()  # the most confident first, 100 at most
    calibration_error: float | None = None  # percent between confidence and what is right

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
            "calibration_error": self.calibration_error,
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
            "mistakes": [each.to_dict() for each in self.wrong],
        }  # fmt: skip

    def mistakes(self, count: int = 10) -> list[Mistake]:
        """The `count` pictures that were answered wrongly with the most confidence, 100 at most."""
        return list(self.wrong[:count])

    def plot(self, path: str) -> None:
        """Save the confusion matrix as a picture (PNG, SVG or PDF by the name's ending)."""
        from rivals.experiment.report.confusion_plot import save_confusion

        save_confusion(self.labels, self.confusion, path)

    def save_mistakes(self, path: str | PathLike[str], count: int = 24) -> int:
        """Save these pictures side by side as one PNG, each with what it is and what was answered.

        Returns how many there are; where there are none, nothing is written.
        """
        from rivals.model.contact_sheet import save_sheet

        found = self.mistakes(count)
        if found:
            save_sheet(found, Path(path))
        return len(found)


def report(
    truth: Sequence[str], predicted: Sequence[str], task: str, given_task: float | None,
    left_out: Sequence[str] = (), wrong: Sequence[Mistake] = (), confidence: Sequence[float] = (),
) -> TestReport:  # fmt: skip
    """A report from the true and the predicted class of each picture."""
    tested = list(dict.fromkeys(truth))
    labels = (*tested, *sorted(set(predicted) - set(tested)))
    pairs = Counter(zip(truth, predicted, strict=True))
    counts = Counter(truth)
    per_class = tuple(ClassResult(each, counts[each], pairs[each, each]) for each in tested)
    confusion = tuple(tuple(pairs[true, guess] for guess in labels) for true in labels)
    right, error = sum(each.right for each in per_class), None
    if confidence:
        good = np.array([true == guess for true, guess in zip(truth, predicted, strict=True)])
        error = calibration_error(np.array(confidence), good)
    return TestReport(
        task, len(truth), right, per_class, labels, confusion, given_task, tuple(left_out),
        tuple(wrong), error,
    )  # fmt: skip


def find_mistakes(
    items: Sequence[str | int], images: NDArray[np.uint8], truth: Sequence[str],
    answers: Sequence[Answer], most: int = MOST_MISTAKES,
) -> list[Mistake]:  # fmt: skip
    """Of pictures that came from `items`, those that were answered wrongly, most confident first.

    Their pixels are copied, so that the others can be forgotten.
    """
    wrong = [place for place, label in enumerate(truth) if answers[place].label != label]
    wrong.sort(key=lambda place: -answers[place].confidence)
    return [
        Mistake(
            items[place], truth[place], answers[place].label, answers[place].task,
            answers[place].confidence, images[place].copy(),
        )
        for place in wrong[:most]
    ]  # fmt: skip


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
