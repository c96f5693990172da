"""A folder of folders is a stream: PATH/task/class/picture.jpg.

    PATH/task1/cat/*.jpg   PATH/task1/dog/*.jpg     a share of the pictures is held out for the test
    PATH/task2/train/cat/*.jpg   PATH/task2/test/cat/*.jpg     or the test pictures are given

The benchmark `folder:PATH` is made of it. Pictures are decoded when their task is asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

from pydantic import Field

from rivals.errors import RivalsError
from rivals.io.pictures import Shape
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams import picture_source
from rivals.streams.own_streams import LARGEST, SMALLEST, LoadedTask, Splitting, TaskList
from rivals.streams.picture_source import PictureSource
from rivals.streams.stream import Benchmark, Stream
from rivals.streams.task import Examples, Preprocessing

PARTS = ("train", "test")


class FolderSettings(Settings):
    """How a folder of folders becomes a stream."""

    tasks: int = Field(0, ge=0, description="use the first so many tasks; 0: all")
    size: int = Field(32, ge=SMALLEST, le=LARGEST, description="pixels a side of every picture")
    grey: bool = Field(False, description="one channel instead of three")
    test_share: float = Field(
        0.2, gt=0, lt=1, description="of each class, in tasks without a folder named test"
    )
    validation_share: float = Field(0.1, gt=0, lt=1, description="of the other pictures")
    per_class: int = Field(0, ge=0, description="at most so many training pictures a class; 0: all")


@dataclass(frozen=True)
class TaskFolder:
    """The picture files of a task; `test` is None where none are given."""

    train: PictureSource
    test: PictureSource | None


def folder_benchmark(path: str) -> Benchmark:
    """The benchmark `folder:PATH`."""
    return Benchmark(FolderSettings, partial(stream_of_folder, path))


def stream_of_folder(
    path: str | PathLike[str],
    settings: FolderSettings,
    seed: Seed,
    preprocessing: Preprocessing | None = None,
) -> Stream:
    """See `Stream.from_folder`."""
    root = Path(path)
    found = find_tasks(root)
    if settings.tasks > len(found):
        raise RivalsError(f"tasks is {settings.tasks}, but {root} has {len(found)}; use 0 for all.")
    chosen = dict(list(found.items())[: settings.tasks or None])
    shape = (1 if settings.grey else 3, settings.size, settings.size)
    splitting = Splitting(settings.test_share, settings.validation_share, settings.per_class)
    tasks: dict[str, Callable[[], LoadedTask]] = {
        name: partial(load_task, task, shape) for name, task in chosen.items()
    }
    name = f"folder:{root.resolve().name}"
    return TaskList(name, shape, fingerprint(root, chosen), tasks, splitting, preprocessing, seed)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key for sorting: numbers inside a name count as numbers, so task2 is before task10."""
    words = re.split(r"(\d+)", text.casefold())
    return [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in words if word]


def find_tasks(root: Path) -> dict[str, TaskFolder]:
    """The tasks in a folder by name, in natural order; no picture is opened."""
    folders = sorted(
        picture_source.subfolders(root), key=lambda path: (natural(path.name), path.name)
    )
    if not folders:
        raise RivalsError(
            f"{root} holds no tasks; expected a folder for each task with a folder for each class "
            "inside: PATH/task/class/picture.jpg."
        )
    return {picture_source.named(path.name, "task"): find_task(path) for path in folders}


def find_task(folder: Path) -> TaskFolder:
    """The pictures of a task by class."""
    inside = sorted(path.name for path in picture_source.subfolders(folder))
    if inside != sorted(PARTS):
        return TaskFolder(picture_source.find(folder), None)
    train, test = (picture_source.find(folder / part) for part in PARTS)
    if list(train.classes) != list(test.classes):
        odd = sorted(set(train.classes) ^ set(test.classes))[0]
        raise RivalsError(
            f"The class '{odd}' of {folder} is only in one of the folders train and test; both "
            "need the same classes."
        )
    return TaskFolder(train, test)


def load_task(task: TaskFolder, shape: Shape) -> LoadedTask:
    """Decode the pictures of a task."""
    train = picture_source.read(task.train, shape)
    examples, test = Examples(train.images, train.labels), None
    if task.test is not None:
        held = picture_source.read(task.test, shape)
        test = Examples(held.images, held.labels)
    return LoadedTask(train.classes, examples, test)


def fingerprint(root: Path, tasks: dict[str, TaskFolder]) -> str:
    """Of the names and bytes of all picture files; where the folder lies does not matter."""
    digest = hashlib.sha256()
    for task in tasks.values():
        for part in filter(None, (task.train, task.test)):
            for path in (Path(file) for files in part.classes.values() for file in files):
                try:
                    content = hashlib.sha256(path.read_bytes()).digest()
                except OSError as error:
                    raise RivalsError(f"{path} cannot be read ({error.strerror}).") from error
                digest.update(path.relative_to(root).as_posix().encode("utf-8", "surrogateescape"))
                digest.update(b"\0" + content)
    return f"folder:{digest.hexdigest()[:16]}"
