"""What is refused before a lesson begins or while its pictures are read, with torch or without."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rivals.errors import RivalsError
from rivals.model import limits
from rivals.streams.picture_source import LeftOut


def folder_name(folder: str | os.PathLike[str]) -> str:
    """What a task is called that was learned from a folder."""
    return os.path.basename(os.path.abspath(folder)) or "task"


def check_apart(folder: Path, model: Path) -> None:
    """A model among the pictures would be taken for a class."""
    inner, outer = (Path(os.path.realpath(each)) for each in (model, folder))  # loops, too
    if inner == outer or outer in inner.parents:
        raise RivalsError(
            f"The model {model} would lie inside the folder of pictures {folder}; choose another "
            "place with --model."
        )


def check_known(tasks: Iterable[str], task: str, again: bool) -> None:
    """Refuse to learn a known task anew by mistake, or to refine one that is not known."""
    known = list(tasks)
    if len(known) >= limits.TASKS and not again:
        raise RivalsError(
            f"The model knows {len(known):,} tasks, which is the limit; drop one first."
        )
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


def check_classes(task: str, known: Sequence[str], found: Sequence[str]) -> None:
    if sorted(known) != sorted(found):
        raise RivalsError(
            f"The task '{task}' has the classes {some_of(known)}, but the pictures have "
            f"{some_of(found)}; to refine a task its classes must be the same."
        )


def check_strict(place: Path | str, left_out: Sequence[LeftOut]) -> None:
    """Refuse a folder with files that cannot be learned from."""
    if left_out:
        names = [Path(each.path).name for each in left_out]
        raise RivalsError(
            f"{len(names)} of the files in {place} cannot be learned from ({some_of(names)}); "
            "take them out, or leave out --strict to see why each."
        )


def some_of(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


@contextmanager
def limits_in_words() -> Iterator[None]:
    """The machine's limits in one sentence: torch, too, needs a place for temporary files."""
    try:
        yield
    except OSError as error:
        raise RivalsError(
            f"The machine has no room to learn ({error.strerror or type(error).__name__}); free "
            "some space on its disks, that for temporary files included. The model is as it was."
        ) from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        raise RivalsError(
            "The memory is used up; close other programs, or allow fewer pictures with --ram. The "
            "model is as it was."
        ) from error
