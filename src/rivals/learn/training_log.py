"""The callback that feeds loggers: numbers of every few steps, numbers and a picture of every task.

    steps/  task, loss, accuracy, lr, entropy, memory_mb             every N steps
    tasks/  accuracy_known, forgetting, entropy, memory_mb …   after every task
    winners                                              the winner of every block, a row a task

A step has the number of steps that were made before it, over all tasks. Nothing is averaged, so a
run that goes on after a kill logs what one that was never stopped does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.process_memory import peak_memory
from rivals.learn.callbacks import Callback
from rivals.logs.logger import Logger

if TYPE_CHECKING:
    from rivals.learn.method import StepResult
    from rivals.learn.trainer import Trainer

EVERY = 10  # steps
FEWEST = 50  # steps of a task that are logged, as far as it has so many
FLUSH_SECONDS = 2.0  # so that others can watch
NOT_SETTINGS = ("format", "data", "versions", "sha256")  # of config.yaml
CELL, LARGEST_SIDE, MOST_TASKS = 10, 1600, 200  # of a picture of winners
FLATTEST = 4  # times as wide as high, so that few tasks can be seen, too
PALETTE = np.array(
    [
        (31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189),
        (140, 86, 75), (227, 119, 194), (127, 127, 127), (188, 189, 34), (23, 190, 207),
    ],
    dtype=np.uint8,
)  # fmt: skip


class TrainingLog(Callback):
    """Feeds loggers. `rivals.run(…, log=…)` and `Model.learn(…, log=…)` make one.

    Args:
        loggers: A logger, or several.
        every: Steps of a task between two that are logged. The last of a task is logged, too, and
            of short trainings so many that there are fifty.

    >>> import numpy as np, rivals
    >>> class Losses(rivals.Logger):
    ...     found = []
    ...     def scalars(self, values, step):
    ...         self.found += [values[name] for name in values if name == "steps/loss"]
    >>> images = np.random.default_rng(0).integers(0, 256, (40, 16, 16), dtype=np.uint8)
    >>> data, losses = (images, ["a", "b"] * 20), Losses()
    >>> log = rivals.TrainingLog(losses, every=1)
    >>> learned = rivals.Model("noise").learn(data, "noise", epochs=2, callbacks=[log])
    >>> len(losses.found) > 1
    True
    """

    def __init__(self, loggers: Logger | Sequence[Logger], every: int = EVERY) -> None:
        if every < 1:
            raise RivalsError(f"--log-every is {every}, but must be at least 1.")
        self.loggers = [loggers] if isinstance(loggers, Logger) else list(loggers)
        self.every = every
        self.steps: dict[str, int] = {}  # made so far, by task
        self.noted: dict[str, float] = {}  # that the next step takes along
        self.begun = False
        self.flushed = 0.0

    # Of rivals.run -----------------------------------------------------------------------------

    def on_run_begin(self, run: Any) -> None:
        stored = run.folder.read_config()
        config = {name: each for name, each in stored.items() if name not in NOT_SETTINGS}
        self.steps = dict(run.measured.steps)
        self.begin(config, sum(self.steps.values()))
        if run.done and not run.resuming:  # perhaps it was stopped before it could say so
            self.on_results(run)

    def on_save(self, run: Any) -> None:
        self.flush()

    def on_results(self, run: Any) -> None:
        """What the results say after a task, over all tasks so far."""
        content, at = run.results.content, sum(self.steps.values())
        summary, tasks = content["summary"], content["tasks"]
        inferred = content["inferred"][-1] if content["inferred"] else {"after": 0}
        measured_now = inferred["after"] == len(tasks)
        values = {
            "accuracy_known": summary["accuracy"]["task_known"],
            "accuracy_unknown": summary["accuracy"]["task_inferred"] if measured_now else None,
            "accuracy_new": content["matrix"][-1][-1],
            "forgetting": summary["forgetting"],
            "entropy": (tasks[-1].get("entropy") or [None])[-1],
            "winners_changed": tasks[-1].get("winners_changed"),
            "memory_mb": peak_memory() / 1e6,
            "bytes": sum(summary["bytes"].values()),
            "ticket_bytes": tasks[-1]["ticket"]["bytes"],
        }
        picture = winner_picture([task.get("winners", []) for task in tasks])
        if picture is not None:
            for logger in self.loggers:
                logger.image("winners", picture, at)
        self.log("tasks", {name: value for name, value in values.items() if value is not None}, at)
        self.flush()

    def on_run_end(self, run: Any) -> None:
        self.close()

    # Of every training -------------------------------------------------------------------------

    def on_task_begin(self, trainer: Trainer) -> None:
        if not self.begun:
            self.begin({"task": trainer.task.name, **trainer.method.settings.model_dump()}, 0)
        self.steps.setdefault(trainer.task.name, trainer.method.position.step)

    def on_step(self, trainer: Trainer, result: StepResult) -> None:
        at, task = trainer.method.position, trainer.task.name
        self.steps[task] = at.step
        every = min(self.every, max(1, at.steps // FEWEST))
        if (at.step - 1) % every and at.step < at.steps:
            return
        values = {
            "task": list(self.steps).index(task) + 1,
            "loss": result.loss,
            "accuracy": 100 * result.correct / max(1, result.seen),
            **trainer.method.step_facts(),
            "memory_mb": peak_memory() / 1e6,
            **self.noted,
        }
        self.noted = {}
        self.log("steps", values, sum(self.steps.values()) - 1)
        if time.monotonic() - self.flushed > FLUSH_SECONDS:
            self.flush()

    def on_task_end(self, trainer: Trainer) -> None:
        self.flush()

    # Of anybody --------------------------------------------------------------------------------

    def begin(self, settings: Mapping[str, Any], step: int) -> None:
        """Log from `step` on."""
        self.begun, values = True, _flat(settings)
        for logger in self.loggers:
            logger.rewind(step)
            logger.settings(values)

    def note(self, **values: float) -> None:
        """Numbers that the next step takes along."""
        self.noted |= values

    def log(self, group: str, values: Mapping[str, float], step: int) -> None:
        for logger in self.loggers:
            logger.scalars({f"{group}/{name}": value for name, value in values.items()}, step)

    def flush(self) -> None:
        for logger in self.loggers:
            logger.flush()
        self.flushed = time.monotonic()

    def close(self) -> None:
        for logger in self.loggers:
            logger.close()


def winner_picture(tasks: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.uint8] | None:
    """The winners of all tasks, the last ones if there are many: a row a task, a column a block, a
    colour a unit, a white line between layers. None for a method without winners."""
    tasks = tasks[-MOST_TASKS:]
    layers = [len(layer) for layer in tasks[-1]] if tasks else []
    tasks = [task for task in tasks if [len(layer) for layer in task] == layers]
    if not sum(layers):
        return None
    wide, high = sum(layers) + len(layers) - 1, len(tasks)
    cells = np.full((high, wide, 3), 255, np.uint8)
    for row, task in enumerate(tasks):
        start = 0
        for layer in task:
            units = np.array(layer, dtype=np.int64)
            fading = 0.75 ** (units // len(PALETTE))  # more units than colours: darker ones
            shades = PALETTE[units % len(PALETTE)] * fading[:, None]
            cells[row, start : start + len(layer)] = shades.astype(np.uint8)
            start += len(layer) + 1
    side = max(1, min(CELL, LARGEST_SIDE // max(wide, high)))
    tall = max(side, min(LARGEST_SIDE, wide * side) // (FLATTEST * high))
    return cells.repeat(tall, axis=0).repeat(side, axis=1)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
