"""Callbacks of the trainer: progress, stopping, early stopping with the best weights, budgets.

class PrintLoss(Callback):
    def on_step(self, trainer, result):
        print(result.loss)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rivals.errors import Interrupted, RivalsError
from rivals.io.process_memory import peak_memory

if TYPE_CHECKING:
    from rivals.learn.method import StepResult
    from rivals.learn.trainer import Trainer

IMAGES = 64  # evaluated at once
MEMORY_EVERY = 50  # steps between two readings of memory
TRUSTED_STEPS = 5  # before their mean time is trusted


class Callback:
    """What a trainer calls. Override what you need.

    >>> import numpy as np, rivals
    >>> class Losses(rivals.Callback):
    ...     values = []
    ...     def on_step(self, trainer, result):
    ...         self.values.append(result.loss)
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    >>> data, losses = (images, ["a", "b"] * 20), Losses()
    >>> learned = rivals.Model("noise").learn(data, "noise", epochs=2, callbacks=[losses])
    >>> len(losses.values) > 1
    True
    """

    def on_task_begin(self, trainer: Trainer) -> None:
        """The task is open, no step was made."""

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        """After every step."""

    def on_train_end(self, trainer: Trainer) -> None:
        """After the last step, before the method closes the task."""

    def on_task_end(self, trainer: Trainer) -> None:
        """The task is learned."""

    # Only `rivals.run` calls these; `run` has `results.content`, `method`, `folder` and `stream`.

    def on_run_begin(self, run: Any) -> None:
        """Before the first task, or before a run goes on that was stopped."""

    def on_save(self, run: Any) -> None:
        """Before a checkpoint is written."""

    def on_results(self, run: Any) -> None:
        """All tasks so far were measured, and the results are written."""

    def on_run_end(self, run: Any) -> None:
        """The run is finished, stopped or broken off."""


class OnStep(Callback):
    """Calls a function with the result of every step."""

    def __init__(self, function: Callable[[StepResult], None]) -> None:
        self.function = function

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        self.function(result)


class StopOnRequest(Callback):
    """Stops at once, by raising `Interrupted`, when `asked` says so."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        self.asked = asked

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        if self.asked():
            raise Interrupted


class TimeLimit(Callback):
    """Brings the end nearer if the remaining seconds would not last to it.

    `left` says how many seconds training may still take; `refuse` is called with the mean seconds
    of a step if there is time for fewer than `fewest` steps.
    """

    def __init__(
        self, left: Callable[[], float], fewest: int, refuse: Callable[[float, int], None]
    ) -> None:
        self.left, self.fewest, self.refuse = left, fewest, refuse
        self.began = 0.0

    def on_task_begin(self, trainer: Trainer) -> None:
        self.began = time.monotonic()

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        at, left = trainer.method.position, self.left()
        if math.isinf(left) or at.step < TRUSTED_STEPS:
            return
        each = (time.monotonic() - self.began) / at.step
        possible = at.step + max(0, int(left / each))
        if possible < self.fewest:
            self.refuse(each, self.fewest)
        if possible < at.steps:
            trainer.end_at(max(at.step, possible), "minutes")


class MemoryLimit(Callback):
    """Refuses to go on when the process has taken more memory than allowed."""

    def __init__(self, megabytes: float) -> None:
        self.megabytes = megabytes

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        if trainer.method.position.step % MEMORY_EVERY == 1:
            taken = peak_memory() / 1e6
            if taken > self.megabytes:
                raise RivalsError(
                    f"Learning took {taken:.0f} MB, but {self.megabytes:g} MB are allowed; allow "
                    "more with --ram, or use fewer or smaller pictures. Nothing was changed."
                )


class EarlyStopping(Callback):
    """Stops when validation accuracy no longer rises, and keeps the best weights.

    After `patience` checks without a better one the end is brought near: `cooling` of the steps so
    far remain, in which the learning rate falls to 0. When training ends, the weights of the best
    check are restored if they were better than the last ones by more than chance explains: by two
    standard errors of the accuracy. With few validation images a check in the middle is often ahead
    by luck, and weights before the learning rate has fallen are worse on new images. With fewer
    than `trusted` validation images training is not cut short, either.

    Args:
        every: Given the planned number of steps, how many steps lie between two checks.
        patience: Checks without a better accuracy before training ends.
        cooling: Share of the steps so far that still follow.
        trusted: Validation images that are needed to cut training short.
        listener: Called with every check, a dictionary.

    >>> import rivals
    >>> stream = rivals.Stream.from_benchmark("digits")
    >>> network = {"architecture": "mlp", "widths": (16, 16), "units": 4}
    >>> method = rivals.methods["twta"].for_stream(stream, network=network, epochs=9)
    >>> stopping = rivals.EarlyStopping(every=lambda steps: 5, patience=2)
    >>> reason = rivals.Trainer(method, [stopping]).fit(stream[0].task)
    >>> reason in ("planned", "no-longer-better"), stopping.best > 50
    (True, True)
    """

    def __init__(
        self, every: Callable[[int], int], patience: int = 5, cooling: float = 0.15,
        trusted: int = 20, listener: Callable[[dict[str, Any]], None] = lambda event: None,
    ) -> None:  # fmt: skip
        self.every, self.patience, self.cooling = every, patience, cooling
        self.trusted, self.listener = trusted, listener
        self.best, self.since = -1.0, 0  # validation accuracy, checks since then
        self.weights: list[Tensor] = []  # of the best check
        self.interval = 1

    def on_task_begin(self, trainer: Trainer) -> None:
        self.best, self.since, self.weights = -1.0, 0, []
        self.interval = self.every(trainer.method.position.steps)

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        at = trainer.method.position
        if at.step % self.interval == 0 and trainer.method.settled and at.step < at.steps:
            self.check(trainer)

    def check(self, trainer: Trainer) -> None:
        at, accuracy = trainer.method.position, validation_accuracy(trainer)
        held = len(trainer.task.validation)
        event = {"event": "validation", "accuracy": accuracy, "held": held, "step": at.step}
        self.listener(event)
        better, as_good = accuracy > self.best, accuracy >= self.best
        self.since = 0 if better else self.since + 1
        if as_good:  # of equal ones the last, whose learning rate was lower
            self.best = accuracy
            self.weights = [tensor.detach().clone() for tensor in trainer.method.working_tensors()]
        perfect = self.best == 100 and self.since >= 1
        enough = len(trainer.task.validation) >= self.trusted and trainer.reason == "planned"
        if (self.since >= self.patience or perfect) and enough:
            near = at.step + max(1, round(self.cooling * at.step))
            if near < at.steps:
                trainer.end_at(near, "no-longer-better")

    @torch.no_grad()
    def on_train_end(self, trainer: Trainer) -> None:
        if not (self.weights and trainer.method.settled):
            return
        luck = 2 * standard_error(self.best, len(trainer.task.validation))
        if validation_accuracy(trainer) < self.best - luck:
            for tensor, best in zip(trainer.method.working_tensors(), self.weights, strict=True):
                tensor.copy_(best)
        self.weights = []


def standard_error(percent: float, images: int) -> float:
    """Of an accuracy in percent; at least that of one image, where all or none are right."""
    share = min(max(percent / 100, 1 / (images + 1)), 1 - 1 / (images + 1))
    return 100 * math.sqrt(share * (1 - share) / images)


@torch.no_grad()
def validation_accuracy(trainer: Trainer) -> float:
    """Percent right of the validation images of the present task, with the weights as they are."""
    method, task = trainer.method, trainer.task
    right, held = 0, task.validation
    for start in range(0, len(held), IMAGES):
        images = held.images[start : start + IMAGES].to(method.device)
        scores = method.logits(task.preprocessing(images), task.name)
        right += int((scores.argmax(1).cpu() == held.labels[start : start + IMAGES]).sum())
    return 100 * right / max(1, len(held))
