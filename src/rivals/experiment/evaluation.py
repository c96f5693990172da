"""Accuracy on test data, which only the evaluator ever holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rivals.experiment.calibration import expected_error
from rivals.learn.method import Method
from rivals.seeds import Seed
from rivals.streams.stream import StreamItem
from rivals.streams.task import Examples

BATCH = 500
INFERRED_IMAGES = 200  # a task, at most, when the task is inferred
INFERRED_POINTS = 5  # evaluations with the task inferred: every ticket sees every image


@dataclass(frozen=True)
class Inferred:
    """With the task inferred, of each image: whether the task was right, whether the class was as
    well, and the confidence of the method."""

    named: Tensor  # (n,) bool
    right: Tensor  # (n,) bool
    confidence: Tensor  # (n,) from 0 to 1

    @property
    def task(self) -> float:
        """Percent of images whose task was right."""
        return 100 * int(self.named.sum()) / len(self.named)

    @property
    def accuracy(self) -> float:
        """Percent of images whose task and class were."""
        return 100 * int(self.right.sum()) / len(self.right)


def known(method: Method, item: StreamItem) -> float:
    """Percent right with the task given. Always measured anew, never copied."""
    return _percent(method, item.test, item.task.name)


def validation(method: Method, item: StreamItem) -> float | None:
    """Percent right on validation data, which is what settings may be chosen by; None without."""
    if not len(item.task.validation):
        return None
    return _percent(method, item.task.validation, item.task.name)


def _percent(method: Method, examples: Examples, task: str) -> float:
    right = 0
    for images, labels in _batches(examples):
        right += int((method.predict(images, task).label == labels).sum())
    return 100 * right / len(examples)


def inferred(method: Method, items: Sequence[StreamItem], seed: Seed) -> list[Inferred]:
    """For every task so far, percent right with the task unknown."""
    found = []
    for number, item in enumerate(items):
        examples = _sample(item.test, seed.child("inferred", item.task.name))
        parts = []
        for images, labels in _batches(examples):
            prediction = method.predict(images, None)
            here = prediction.task == number
            parts.append((here, here & (prediction.label == labels), prediction.confidence))
        found.append(Inferred(*(torch.cat(part) for part in zip(*parts, strict=True))))
    return found


def calibration_error(found: Sequence[Inferred]) -> float:
    """Expected calibration error of all these answers, in percent."""
    confidence, right = (
        torch.cat([getattr(each, name) for each in found]) for name in ("confidence", "right")
    )
    return 100 * expected_error(confidence, right)


def inference_due(done: int, length: int) -> bool:
    """Whether the task is to be inferred after `done` of `length` tasks: at the end and at five
    evenly spaced points."""
    points = {round(length * k / INFERRED_POINTS) for k in range(1, INFERRED_POINTS + 1)}
    return done in points or done == length


def _sample(examples: Examples, seed: Seed) -> Examples:
    if len(examples) <= INFERRED_IMAGES:
        return examples
    order = torch.randperm(len(examples), generator=seed.torch())
    return examples.subset(order[:INFERRED_IMAGES].sort().values)


def _batches(examples: Examples) -> list[tuple[Tensor, Tensor]]:
    starts = range(0, len(examples), BATCH)
    return [(examples.images[i : i + BATCH], examples.labels[i : i + BATCH]) for i in starts]
