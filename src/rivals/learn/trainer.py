"""The one training loop: for benchmarks, for `learn`, and for refining a task.

    Trainer(method, callbacks).fit(task)

    start, on_task_begin ─► epochs × batches: step, on_step ─► on_train_end, finish, on_task_end

Callbacks watch, save, stop early or stop at once; the method decides what a step is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rivals.errors import RivalsError
from rivals.learn.callbacks import Callback
from rivals.learn.method import Method, StepResult
from rivals.streams.batching import epoch
from rivals.streams.task import Task

PLANNED = "planned"  # why training ended, if nothing stopped it


class Trainer:
    """Trains a method on one task after the other.

    >>> import rivals
    >>> stream = rivals.Stream.from_benchmark("digits")
    >>> network = {"architecture": "mlp", "widths": (16, 16), "units": 4}
    >>> method = rivals.methods["twta"].for_stream(stream, network=network, epochs=2)
    >>> trainer = rivals.Trainer(method, callbacks=[rivals.Callback()])
    >>> [trainer.fit(item.task) for item in list(stream)[:2]]
    ['planned', 'planned']
    """

    task: Task  # that is being learned

    def __init__(self, method: Method, callbacks: Sequence[Callback] = ()) -> None:
        self.method, self.callbacks = method, tuple(callbacks)
        self.reason = PLANNED

    def fit(self, task: Task, resume: bool = False) -> str:
        """Learn `task`, or go on with it after a stop; says why training ended."""
        start = (lambda: None) if resume else (lambda: self.method.start(task))
        return self._train(task, start, lambda: self.method.finish(task))

    def refine(self, task: Task) -> str:
        """Train a task further that is known, where the method can."""
        method = self.method
        return self._train(
            task, lambda: method.begin_refining(task), lambda: method.end_refining(task)
        )

    def end_at(self, step: int, reason: str) -> None:
        """Bring the end nearer: the schedule of the learning rate follows."""
        self.method.position.steps = step
        self.reason = reason

    def _train(self, task: Task, begin: Callable[[], None], end: Callable[[], None]) -> str:
        self.task, self.reason = task, PLANNED
        begin()
        self.task = self.method.training_view(task)
        for callback in self.callbacks:
            callback.on_task_begin(self)
        self.run_epochs(self.task)
        for callback in self.callbacks:
            callback.on_train_end(self)
        end()
        for callback in self.callbacks:
            callback.on_task_end(self)
        return self.reason

    def run_epochs(self, task: Task) -> None:
        """All steps, from wherever the method's position stands."""
        method, at = self.method, self.method.position
        while at.epoch < method.planned_epochs():
            portions = method.training_set(task)
            seed = method.seed.child("epoch", task.name, at.epoch)
            for batch in epoch(portions, method.settings.batching, seed, first=at.batch):
                batch = batch.to(method.device)
                method.before_step(batch)
                result = method.counted_step(batch)
                self._check(result)
                at.batch, at.step = at.batch + 1, at.step + 1
                for callback in self.callbacks:
                    callback.on_step(self, result)
                if self.reason != PLANNED and at.step >= at.steps:
                    return
            method.end_epoch(task)
            at.epoch, at.batch = at.epoch + 1, 0

    def _check(self, result: StepResult) -> None:
        at = self.method.position
        if not math.isfinite(result.loss):
            raise RivalsError(
                f"The loss became {result.loss} in task '{self.task.name}' at step {at.step + 1} "
                f"of {at.steps}; lower lr (now {self.method.settings.lr:g}) and start again, what "
                "was saved before is kept."
            )
