"""The loop over tasks. A run is a folder, and a folder goes on from wherever it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rivals.errors import Interrupted, RivalsError
from rivals.experiment.checkpoint import DAMAGE, Checkpoint, CheckpointFolder
from rivals.experiment.measurements import Measured
from rivals.experiment.result_file import check
from rivals.experiment.results import Results
from rivals.experiment.run_folder import RunFolder
from rivals.learn.callbacks import Callback
from rivals.learn.method import Method, StepResult
from rivals.learn.trainer import Trainer
from rivals.seeds import Seed
from rivals.streams.stream import Stream, StreamItem
from rivals.tickets.ticket import Ticket


@dataclass
class Run:
    """A stream, a method, and the folder where both are kept safe."""

    stream: Stream
    method: Method
    folder: RunFolder
    results: Results
    seed: Seed
    callbacks: Sequence[Callback] = ()
    measured: Measured = field(default_factory=Measured)
    save_every: float = 30.0  # seconds between two checkpoints inside a task
    asked_to_stop: Callable[[], bool] = lambda: False
    done: int = 0  # tasks
    resuming: bool = False  # in the middle of a task
    item: StreamItem | None = None  # the latest task, with its test examples

    def go(self) -> Results:
        """Do what is still to come, and let go of the folder, whatever happens."""
        try:
            results = self.tasks()
            self.folder.check_place()  # nobody is told of results that are not there
            return results
        finally:
            self.folder.release()
            for callback in self.callbacks:
                callback.on_run_end(self)

    def tasks(self) -> Results:
        """Learn, evaluate and record every task."""
        items = [self.stream[index] for index in range(self.done)]
        for callback in self.callbacks:
            callback.on_run_begin(self)
        for index in range(self.done, len(self.stream)):
            self.item = item = self.stream[index]
            items.append(item)
            self.learn(item)
            self.results.add(self.method, items, self.stream, self.seed)
            self.done = index + 1
            self.folder.check_place()
            self.write_tickets()
            self.save()
            self.results.write(self.folder.results)
            for callback in self.callbacks:
                callback.on_results(self)
            if self.asked_to_stop() and self.done < len(self.stream):
                raise Interrupted
        return self.results

    def learn(self, item: StreamItem) -> None:
        """One task, from its beginning or from the step at which it was interrupted."""
        resume, self.resuming = self.resuming, False
        saving = SaveEvery(self)
        Trainer(self.method, (Measuring(self.measured), *self.callbacks, saving)).fit(
            item.task, resume
        )

    def write_tickets(self) -> None:
        """The ticket of the last task; after the last task, all of them as they are in the end."""
        tasks, row = self.results.content["tasks"], self.results.content["matrix"][-1]
        first = 0 if self.results.content["complete"] else len(tasks) - 1
        for task, accuracy in list(zip(tasks, row, strict=True))[first:]:
            known = self.method.known[task["name"]]
            Ticket(
                self.method.ticket(task["name"]), task["name"], known.classes, known.preprocessing,
                self.stream.input_shape,
                [winners.tolist() for winners in self.method.winners(task["name"])], accuracy,
                self.stream.sound,
            ).cpu().save(self.folder.ticket(task["name"]))  # fmt: skip

    def save(self) -> None:
        """Put the state beside the results it belongs to, both or neither."""
        self.folder.check_place()
        for callback in self.callbacks:
            callback.on_save(self)
        self.folder.checkpoints.save(
            Checkpoint(
                self.done, self.results.content, self.measured.to_dict(), self.method.state()
            )
        )
        self.folder.write_measured(self.measured)
        self.folder.check_place()

    def restore(self, checkpoints: CheckpointFolder) -> None:
        """Go back to what a checkpoint holds."""
        checkpoint = checkpoints.load()
        try:
            checkpoint.into(self.method)
        except DAMAGE as error:
            raise RivalsError(
                f"The checkpoint {checkpoints.folder} does not fit this run "
                f"({type(error).__name__}); use the version of rivals that wrote it."
            ) from error
        self.done = checkpoint.done
        if self.done:
            check(checkpoint.results, checkpoints.manifest)
        found = len(checkpoint.results.get("tasks", []))
        if found != self.done or found > len(self.stream):
            raise RivalsError(
                f"The checkpoint {checkpoints.folder} is damaged: its results are not those of "
                f"{self.done} tasks; delete the folder to start anew."
            )
        self.results = Results(checkpoint.results)
        self.measured = Measured.from_dict(checkpoint.measured)
        checkpoints.sweep()
        self.resuming = len(self.method.known) > checkpoint.done
        if self.done:
            self.results.write(self.folder.results)
        self.folder.write_measured(self.measured)


class Measuring(Callback):
    """Adds the seconds and the steps of training to the measurements."""

    def __init__(self, measured: Measured) -> None:
        self.measured = measured

    def on_task_begin(self, trainer: Trainer) -> None:
        self.measured.begin(trainer.task.name)

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        self.measured.steps[trainer.task.name] = trainer.method.position.step

    def on_task_end(self, trainer: Trainer) -> None:
        self.measured.end()


class SaveEvery(Callback):
    """Saves a checkpoint every few seconds, and before it stops on request."""

    def __init__(self, run: Run) -> None:
        self.run, self.saved = run, time.monotonic()

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        stop = self.run.asked_to_stop()
        if stop or time.monotonic() - self.saved >= self.run.save_every:
            self.run.save()
            self.saved = time.monotonic()
        if stop:
            raise Interrupted
