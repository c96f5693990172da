"""Learning as events: what `rivals learn --json` prints and the page shows.

reading · left_out · fewer · grows · begins · step · validation · mistakes · done · stopped · error
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rivals.learn.callbacks import Callback
from rivals.learn.method import Method, StepResult
from rivals.learn.model_twta import ModelTWTA
from rivals.learn.trainer import Trainer
from rivals.streams.task import Task

EVERY = 0.25  # seconds between two events of steps
MOST_UNITS = 8192  # of a network whose posteriors are told
MOST_CLASSES = 50  # of a confusion matrix
MOST_MISTAKES = 60  # pictures that are named
Event = dict[str, Any]
Listener = Callable[[Event], None]


class EventCallback(Callback):
    """Tells a listener how training goes."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.began = self.sent = 0.0
        self.right = self.seen = 0

    def on_task_begin(self, trainer: Trainer) -> None:
        self.began = time.monotonic()
        self.listener(begins(trainer.method, trainer.task))

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """Tell how it stands, a few times a second at most."""
        self.right, self.seen = self.right + result.correct, self.seen + result.seen
        now, at = time.monotonic(), trainer.method.position
        if now - self.sent < EVERY and at.step < at.steps:
            return
        self.sent = now
        each = (now - self.began) / at.step
        self.listener({
            "event": "step",
            "step": at.step,
            "steps": at.steps,
            "seconds_left": round(each * (at.steps - at.step), 1),
            "accuracy": 100 * self.right / self.seen,
            "competing": not trainer.method.settled,
            **leaders(trainer),
        })  # fmt: skip
        self.right = self.seen = 0


def begins(method: Method, task: Task) -> Event:
    """What is going to be learned."""
    assert isinstance(method, ModelTWTA)
    rivals = method.network.rivals()
    return {
        "event": "begins",
        "task": task.name,
        "classes": list(task.classes),
        "images": len(task.train),
        "held": len(task.validation),
        "steps": method.position.steps,
        "layers": [{"blocks": each.blocks, "units": each.units} for each in rivals],
    }


def mistakes(task: Task, predicted: Tensor, items: Sequence[Any]) -> Event:
    """What pictures that were not learned from were taken for.

    `predicted` is for the pictures held out; or for all, the training pictures first. `items` are
    all pictures in this order, as their source calls them: files, or their places in a dataset.
    The confusion matrix (rows: true classes, columns: answers) is left out if it were very large.
    """
    labels = torch.cat([task.train.labels, task.validation.labels])[-len(predicted) :]
    predicted = predicted.cpu()
    wrong = (labels != predicted).nonzero().flatten().tolist()
    count, shown = len(task.classes), items[-len(predicted) :]
    confusion = torch.bincount(labels * count + predicted, minlength=count**2)
    return {
        "event": "mistakes",
        "classes": list(task.classes),
        "confusion": confusion.view(count, count).tolist() if count <= MOST_CLASSES else None,
        "count": len(wrong),
        "mistakes": [
            {
                "picture": str(shown[place]),
                "label": task.classes[int(labels[place])],
                "answer": task.classes[int(predicted[place])],
            }
            for place in wrong[:MOST_MISTAKES]
        ],
    }


def network_of(trainer: Trainer) -> Any:
    assert isinstance(trainer.method, ModelTWTA)
    return trainer.method.network


def leaders(trainer: Trainer) -> dict[str, Any]:
    """The unit that leads in every block, layer by layer, and its mean posterior.

    While units compete, also the posterior of every unit in whole percents, by layer and block.
    """
    leading, confidence, percents, task = [], [], [], trainer.task.name
    layers = network_of(trainer).rivals_of(task)
    for rivals in layers:
        log_posterior = rivals.posteriors.get(task)
        if log_posterior is None:
            leading.append(rivals.winners[task].tolist())
            confidence.append(1.0)
            continue
        posterior = torch.softmax(log_posterior.detach(), 1)  # (blocks, contenders)
        best, units = posterior.max(1), rivals.contenders[task]
        leading.append(units.gather(1, best.indices.unsqueeze(1)).squeeze(1).tolist())
        confidence.append(round(float(best.values.mean()), 4))
        every = posterior.new_zeros(rivals.blocks, rivals.units).scatter(1, units, posterior)
        percents.append((100 * every).round().int().tolist())
    told: dict[str, Any] = {"winners": leading, "confidence": confidence}
    if percents and sum(each.blocks * each.units for each in layers) <= MOST_UNITS:
        told["posteriors"] = percents
    return told
