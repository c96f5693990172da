"""A whole task with default settings against dense training of as many steps."""

from __future__ import annotations

import statistics
import time

from rivals.experiment.bench.bench_row import Row, Target
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.steps import method_of, plain_layouts
from rivals.experiment.bench.timing import Times, fastest, quartiles, timed
from rivals.learn.callbacks import OnStep
from rivals.learn.method import Method, StepResult
from rivals.learn.trainer import Trainer
from rivals.streams.task import Task

LOOKS = 5  # dense steps of each layout while a task is learned, evenly spaced


class DenseBeside:
    """A watcher that times a dense step now and then, and knows how long that took."""

    def __init__(self, network: str, sizes: Sizes, method: Method) -> None:
        self.method = method
        self.training = plain_layouts(network, sizes, native=False)
        self.times: dict[str, list[float]] = {name: [] for name in self.training}
        self.spent = 0.0
        for training in self.training.values():
            training.step()

    def watch(self, step: StepResult) -> None:
        at = self.method.position
        if at.step % max(1, at.steps // LOOKS) == 0:
            start = time.process_time()
            for name, training in self.training.items():
                self.times[name].append(timed(training.step))
            self.spent += time.process_time() - start

    @property
    def step(self) -> float:
        """Seconds of a dense step in the fastest layout."""
        return fastest({name: Times(t) for name, t in self.times.items()}, "dense").median


def whole_task(method: Method, task: Task, beside: DenseBeside) -> float:
    """CPU seconds to open a task, learn it, claim its edges and cut its ticket."""
    beside.spent = 0.0
    start = time.process_time()
    Trainer(method, [OnStep(beside.watch)]).fit(task)
    method.ticket(task.name)
    return time.process_time() - start - beside.spent


def whole_row(network: str, sizes: Sizes, target: Target) -> Row:
    """Several tasks one after the other, dense steps in between."""
    method = method_of(sizes.plan(network), batch_size=sizes.batch, epochs=sizes.epochs)
    beside = DenseBeside(network, sizes, method)
    seconds = []
    for number in range(sizes.whole_tasks):
        task = noise_task(sizes.shape, sizes.images, sizes.classes, number)
        seconds.append(whole_task(method, task, beside))
    steps = method.position.steps
    dense, ours = beside.step * steps, statistics.median(seconds)
    low, high = quartiles([dense / each for each in seconds])
    return Row(
        f"task-{network}", dense / ours, "× faster", target,
        f"{steps} steps with all that belongs to a task in {ours:.1f} s, median of {len(seconds)} "
        f"tasks; as many dense ones, from {len(next(iter(beside.times.values())))} in between, "
        f"in {dense:.1f} s",
        (low, high),
    )  # fmt: skip
