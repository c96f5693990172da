"""`rivals.run`: a whole benchmark, or a stream of one's own, with one method."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.experiment.run_names import run_name
from rivals.experiment.run_settings import resolve
from rivals.experiment.start import prepare
from rivals.learn.callbacks import Callback
from rivals.learn.method import Method, methods
from rivals.learn.training_log import EVERY, TrainingLog
from rivals.logs.open_loggers import FOLDER, LogTarget, open_loggers
from rivals.registry import imports_allowed
from rivals.streams.stream import Stream


@dataclass(frozen=True)
class RunResults:
    """What a run found. `content` is all of it, as results.json holds it.

    >>> import rivals
    >>> settings = {"tasks": 2, "epochs": 3, "architecture": "mlp", "widths": (32, 32), "units": 2}
    >>> results = rivals.run("digits", settings=settings, out="runs/small")
    >>> results.accuracy > 50, results.forgetting
    (True, 0.0)
    >>> results.folder.name, results.content["summary"]["bti"]
    ('small', 0.0)
    """

    folder: Path
    content: Mapping[str, Any]

    @property
    def accuracy(self) -> float:
        """Percent right over all tasks after the last one, the task being known."""
        return float(self.content["summary"]["accuracy"]["task_known"])

    @property
    def accuracy_task_unknown(self) -> float | None:
        """The same where the method has to name the task, too."""
        found = self.content["summary"]["accuracy"]["task_inferred"]
        return None if found is None else float(found)

    @property
    def forgetting(self) -> float:
        """How many points of accuracy tasks lost after they were learned."""
        return float(self.content["summary"]["forgetting"])

    @property
    def matrix(self) -> list[list[float]]:
        """matrix[i][j]: percent right on task j after task i was learned."""
        return [list(row) for row in self.content["matrix"]]


def run(
    benchmark: str | Stream,
    method: str | type[Method] = "twta",
    *,
    preset: str = "default",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    on: str = "test",
    device: str = "cpu",
    threads: int = 1,
    log: LogTarget = None,
    log_every: int = EVERY,
    callbacks: Sequence[Callback] = (),
    asked_to_stop: Callable[[], bool] = lambda: False,
    save_every: float = 30.0,
) -> RunResults:
    """Learn the tasks of a stream one after the other; measure every task again after each.

    Args:
        benchmark: A name (`rivals.benchmarks` lists them), `folder:PATH`, `module:name`, or a
            `rivals.Stream`.
        method: A name (`rivals.methods` lists them), `module:name`, or a subclass of
            `rivals.Method`.
        preset: The recipe of the benchmark.
        seed: All randomness comes from it.
        settings: Changes by name, such as {"epochs": 5, "competition.share": 0.2}.
        out: The folder of the run; by default runs/NAME, or a temporary folder for a Stream.
        resume: Go on with the run in `out`.
        on: Measure on test or on validation images.
        device: cpu, cuda, mps or auto.
        threads: Threads of torch.
        log: Where numbers of steps and tasks go: csv, tensorboard, mlflow or wandb, several as
            "tensorboard,csv", a `rivals.Logger`, or a list; files go to `out`/log.
        log_every: Steps between two that are logged.
        callbacks: Told of every task and every step.
        asked_to_stop: Asked after every step; then `rivals.Interrupted` is raised.
        save_every: Seconds between two checkpoints inside a task.

    >>> import rivals
    >>> small = {"tasks": 2, "epochs": 2, "architecture": "mlp", "widths": (16, 16), "units": 2}
    >>> results = rivals.run("digits", settings=small, out="runs/two-tasks")
    >>> len(results.matrix)
    2
    """
    if not isinstance(benchmark, str | Stream):
        raise RivalsError(
            f"The benchmark is of type {type(benchmark).__name__}, but a name or a rivals.Stream "
            "was expected; make one of your data, such as rivals.Stream.by_classes(data, "
            "classes_per_task=2)."
        )
    own = benchmark if isinstance(benchmark, Stream) else None
    name, method = own.name if own is not None else str(benchmark), methods.named(method)
    with imports_allowed([name, method, *(settings or {}).values()]):
        chosen = resolve(name, method, preset, seed, dict(settings or {}), threads, device, own)
        if out is not None:
            folder = Path(out)
        elif own is None:
            folder = Path("runs") / run_name(name, method, preset, seed, on=on)
        else:
            folder = Path(tempfile.mkdtemp(prefix="rivals-")) / "run"
        if log is not None:
            loggers = open_loggers(log, folder / FOLDER)
            callbacks = (*callbacks, TrainingLog(loggers, log_every))
        job = prepare(chosen, folder, resume, callbacks, asked_to_stop, save_every, on, own)
        return RunResults(folder, job.go().content)
