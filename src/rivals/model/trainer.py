"""The steps of one task, within a budget, told as events, stopped when they no longer help.

The schedule of TWTA follows the share of steps that are done: the competition takes the first fifth
and the learning rate falls to 0 at the end. So a training is stopped early by bringing its end
nearer, not by cutting it off: a few steps remain in which it cools down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rivals.errors import RivalsError
from rivals.learn.method import StepResult
from rivals.learn.twta import TWTA
from rivals.model import defaults as choose
from rivals.model.budgets import TimeBudget
from rivals.naming.familiarity import few
from rivals.streams.batching import epoch
from rivals.streams.task import Batch, Task

PATIENCE = 5  # checks without a better one, before the end is brought nearer
TRUSTED = 20  # pictures held out, below which they say too little to stop early
COOLING = 0.15  # of the steps so far, which remain then
SHOWN = 0.25  # seconds between two events of steps
FEWEST = 20  # steps that a budget must leave time for
SLACK = 5  # steps before their time is trusted


class Interrupted(Exception):  # noqa: N818
    """Somebody asked to stop; the model is as it was."""


class Trainer:
    """Learns one task with a method that is in memory alone."""

    def __init__(
        self, method: TWTA, task: Task, watcher: Callable[[dict[str, Any]], None],
        asked_to_stop: Callable[[], bool], clock: TimeBudget,
    ) -> None:  # fmt: skip
        self.method, self.task, self.clock = method, task, clock
        self.watcher, self.asked_to_stop = watcher, asked_to_stop
        self.best, self.since = -1.0, 0  # accuracy on held-out pictures, checks since then
        self.shown = 0.0
        self.right = self.seen = 0
        self.reason = "planned"

    def learn(self) -> str:
        """A new task from its competition to its claim; says why it ended."""
        before = [rivals.units for rivals in self.method.network.rivals()]
        self.method.start(self.task)
        after = [rivals.units for rivals in self.method.network.rivals()]
        if after != before:
            self.watcher({"event": "grows", "units": after, "before": before})
        self.begins()
        self.train()
        self.method.end_task(self.task)
        self.method.keep(few(self.task))
        return self.reason

    def begins(self) -> None:
        rivals = self.method.network.rivals()
        self.watcher({
            "event": "begins",
            "task": self.task.name,
            "classes": list(self.task.classes),
            "images": len(self.task.train),
            "held": len(self.task.validation),
            "steps": self.method.position.steps,
            "layers": [{"blocks": each.blocks, "units": each.units} for each in rivals],
        })  # fmt: skip

    def train(self) -> None:
        at, method = self.method.position, self.method
        every = choose.checks(at.steps)
        began = time.monotonic()
        for batch in self.batches():
            method.before_step(batch)
            step = self.step(batch)
            if not math.isfinite(step.loss):
                raise RivalsError(
                    f"Learning '{self.task.name}' failed at step {at.step + 1}: the loss became "
                    f"{step.loss}; the model is as it was, try other pictures."
                )
            at.step += 1
            self.right, self.seen = self.right + step.correct, self.seen + step.seen
            if self.asked_to_stop():
                raise Interrupted
            each = (time.monotonic() - began) / at.step
            if at.step >= SLACK:
                self.keep_time(each)
            self.show(each)
            if at.step % every == 0 and not method.competing and at.step < at.steps:
                self.check()
            if at.step >= at.steps:
                break

    def step(self, batch: Batch) -> StepResult:
        return self.method.step(batch)

    def batches(self) -> Iterator[Batch]:
        """Epoch after epoch, until the steps are done."""
        number = 0
        while True:
            seed = self.method.seed.child("epoch", self.task.name, number)
            yield from epoch([self.task], self.method.settings.batching, seed)
            number += 1

    def keep_time(self, each: float) -> None:
        """Bring the end nearer if the budget would not last to it."""
        at = self.method.position
        left = self.clock.left()
        possible = at.steps if math.isinf(left) else at.step + max(0, int(left / each))
        if possible < FEWEST:
            self.clock.check_steps(each, FEWEST)
        if possible < at.steps:
            at.steps, self.reason = max(at.step, possible), "minutes"

    def check(self) -> None:
        """Look at the held-out pictures; if nothing gets better any more, cool down."""
        accuracy = self.accuracy()
        at = self.method.position
        self.watcher({"event": "validation", "accuracy": accuracy, "step": at.step})
        if accuracy > self.best:
            self.best, self.since = accuracy, 0
        else:
            self.since += 1
        perfect = self.best == 100 and self.since >= 1
        enough = len(self.task.validation) >= TRUSTED and self.reason == "planned"
        if (self.since >= PATIENCE or perfect) and enough:
            near = at.step + max(1, round(COOLING * at.step))
            if near < at.steps:
                at.steps, self.reason = near, "no-longer-better"

    @torch.no_grad()
    def accuracy(self) -> float:
        """Percent of the held-out pictures, with the network as it is now."""
        right, held = 0, self.task.validation
        network = self.method.network.learning(False)
        for images, labels in zip(
            torch.split(held.images, 64), torch.split(held.labels, 64), strict=True
        ):
            scores = network(self.task.preprocessing(images), self.task.name, self.method.selection)
            right += int((scores.argmax(1) == labels).sum())
        return 100 * right / len(held)

    def show(self, each: float) -> None:
        """Tell how it stands, a few times a second at most."""
        now, at = time.monotonic(), self.method.position
        if now - self.shown < SHOWN and at.step < at.steps:
            return
        self.shown = now
        self.watcher({
            "event": "step",
            "step": at.step,
            "steps": at.steps,
            "seconds_left": round(each * (at.steps - at.step), 1),
            "accuracy": 100 * self.right / self.seen,
            "competing": self.method.competing,
            **self.winners(),
        })  # fmt: skip
        self.right = self.seen = 0

    def winners(self) -> dict[str, Any]:
        """Who leads in every block, and how sure that is, layer by layer."""
        leading, sure = [], []
        for rivals in self.method.network.rivals():
            posterior = rivals.posteriors.get(self.task.name)
            if posterior is None:
                leading.append(rivals.winners[self.task.name].tolist())
                sure.append(1.0)
                continue
            best = torch.softmax(posterior.detach(), 1).max(1)
            ids = rivals.contenders[self.task.name].gather(1, best.indices.unsqueeze(1))
            leading.append(ids.squeeze(1).tolist())
            sure.append(round(float(best.values.mean()), 4))
        return {"winners": leading, "sure": sure}
