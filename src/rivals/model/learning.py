"""Learning one task from a folder of pictures: read, compete, train, check, and only then write.

    find ─► read ─► hold some out ─► the units compete ─► the winners train ─► measure ─► commit

The model in the folder is touched once, at the end. A kill before leaves the old model, a kill
after leaves the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.model import budgets as budget
from rivals.model import defaults as choose
from rivals.model import picture_folder as pictures
from rivals.model.folder import Model, writing
from rivals.model.manifest import NAME, Description
from rivals.model.session import Learned, LearningSession, LearnOptions, Watcher
from rivals.model.trainer import Interrupted

__all__ = ["Interrupted", "Learned", "learn"]


def learn(
    folder: str | Path,
    model_path: str | Path,
    name: str | None = None,
    *,
    watcher: Watcher = lambda event: None,
    asked_to_stop: Callable[[], bool] = lambda: False,
    started: float | None = None,
    **wishes: Any,
) -> Learned:
    """Teach the model at `model_path`, made if it is not there, the task in `folder`.

    `wishes` are the fields of `LearnOptions`. `asked_to_stop` is asked at every step, and then
    `Interrupted` is raised. `started` is when the budget of minutes began (time.monotonic).
    """
    wanted = LearnOptions(**wishes)
    clock = budget.TimeBudget(wanted.minutes, time.monotonic() if started is None else started)
    where = Path(model_path)
    task = pictures.named(name or pictures.default_name(Path(folder)), "task")
    check_apart(Path(folder), where)
    with writing(where):
        model = Model.open(where) if (where / NAME).exists() else None
        check_known(model, task, wanted.again)
        found = pictures.find(Path(folder))
        if model is None:
            side, _ = pictures.survey(found)
            chosen = choose.plan(side, wanted.grey, wanted.network, wanted.size)
            model = new_model(where, chosen, wanted.seed)
        lesson = LearningSession(model, task, wanted, watcher, asked_to_stop, clock)
        with limits_told():
            return lesson.go(found)


@contextmanager
def limits_told() -> Iterator[None]:
    """The machine's limits in one sentence: torch, too, needs a place for temporary files."""
    try:
        yield
    except OSError as error:
        raise RivalsError(
            f"The machine has no room to learn ({error.strerror or type(error).__name__}); make "
            "some on its disks, that for temporary files included. The model is as it was."
        ) from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        raise RivalsError(
            "The memory is used up; close other programs, or allow fewer pictures with --ram. The "
            "model is as it was."
        ) from error


def check_apart(folder: Path, model: Path) -> None:
    """A model among the pictures would be taken for a class."""
    inner, outer = model.resolve(), folder.resolve()
    if inner == outer or outer in inner.parents:
        raise RivalsError(
            f"The model {model} would lie inside the folder of pictures {folder}; choose another "
            "place with --model."
        )


def check_known(model: Model | None, task: str, again: bool) -> None:
    known = [] if model is None else [each.name for each in model.tasks]
    if task in known and not again:
        raise RivalsError(
            f"The model knows a task '{task}'; choose another name with --name, or refine it with "
            "--again."
        )
    if task not in known and again:
        has = f"it knows {', '.join(known)}" if known else "it knows none"
        raise RivalsError(
            f"The model has no task '{task}' to refine, {has}; name one with --name, or leave out "
            "--again."
        )


def new_model(path: Path, chosen: choose.Plan, seed: int) -> Model:
    if not 0 <= seed < 2**63:
        raise RivalsError(f"--seed is {seed}, but must be at least 0 and below 2^63.")
    network = chosen.network
    content = Description(
        seed, network.architecture, network.widths, network.units, chosen.input_shape, ()
    )
    return Model(path, content)
