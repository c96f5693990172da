"""A folder of folders is a stream: PATH/task/class/picture.jpg, or a WAV file.

    PATH/task1/cat/*.jpg   PATH/task1/dog/*.jpg     a share of the pictures is held out for the test
    PATH/task2/train/cat/*.jpg   PATH/task2/test/cat/*.jpg     or the test pictures are given

The benchmark `folder:PATH` is made of it. Pictures are decoded when their task is asked for. With
the setting `classes_per_task` PATH holds classes, PATH/class/picture.jpg, and tasks are made of
them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from rivals.errors import RivalsError
from rivals.io.pictures import Shape, picture_size
from rivals.io.spectrogram import SoundSettings
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams import picture_source
from rivals.streams.class_groups import class_groups, class_order
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
    classes_per_task: int = Field(
        0, ge=0, description="PATH holds classes; each task has so many; 0: PATH holds tasks"
    )
    order: int = Field(0, ge=0, description="seed of the order of these classes; 0: by name")


@dataclass(frozen=True)
class TaskPictures:
    """The pictures of a task; `test` is None where none are given."""

    train: PictureSource
    test: PictureSource | None

    def read_as(self, sound: SoundSettings | None, reader: str) -> TaskPictures:
        """The same, read as all tasks of a stream: sounds of one length, or pictures."""
        test = self.test and self.test.read_as(sound, reader)
        return TaskPictures(self.train.read_as(sound, reader), test)

    def of_size(self, shape: Shape) -> TaskPictures:
        """The same; pictures of another size than `shape` are refused when they are read, but for
        those of a folder."""
        return TaskPictures(_of_size(self.train, shape), self.test and _of_size(self.test, shape))


def _of_size(source: PictureSource, shape: Shape) -> PictureSource:
    def get(item: Any) -> Any:
        picture = source.get(item)
        width, height = picture_size(picture)
        if (height, width) != shape[1:]:
            raise RivalsError(
                f"it has {width}×{height} pixels, the first one of the stream "
                f"{shape[2]}×{shape[1]}; give size=, to which all are brought."
            )
        return picture

    as_it_is = source.sound is not None or isinstance(source.place, Path)
    return source if as_it_is else replace(source, get=get)


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
    found = find_tasks(root) if settings.classes_per_task == 0 else classes_as_tasks(root, settings)
    if settings.tasks > len(found):
        raise RivalsError(f"tasks is {settings.tasks}, but {root} has {len(found)}; use 0 for all.")
    chosen = dict(list(found.items())[: settings.tasks or None])
    sounds = [task.train.sound for task in chosen.values()]
    sound = max((each for each in sounds if each), key=lambda each: each.seconds, default=None)
    chosen = {name: task.read_as(sound, "the stream") for name, task in chosen.items()}
    shape = (1 if settings.grey or sound else 3, settings.size, settings.size)
    splitting = Splitting(settings.test_share, settings.validation_share, settings.per_class)
    tasks: dict[str, Callable[[], LoadedTask]] = {
        name: partial(load_task, task, shape) for name, task in chosen.items()
    }
    name = f"folder:{root.resolve().name}"
    mark = fingerprint(root, chosen)
    stream = TaskList(name, shape, mark, tasks, splitting, preprocessing, seed)
    stream.sound = sound
    return stream


def classes_as_tasks(root: Path, settings: FolderSettings) -> dict[str, TaskPictures]:
    """Tasks of some of the classes in a folder each."""
    source = picture_source.find(root)
    ordered = class_order(list(source.classes), settings.order or None)
    groups = class_groups(ordered, settings.classes_per_task)
    return {
        f"task-{number}": TaskPictures(source.only({c: source.classes[c] for c in group}), None)
        for number, group in enumerate(groups, 1)
    }


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key for sorting: numbers inside a name count as numbers, so task2 is before task10."""
    words = re.split(r"(\d+)", text.casefold())
    return [(0, int(word), "") if word.isdigit() else (1, 0, word) for word in words if word]


def find_tasks(root: Path) -> dict[str, TaskPictures]:
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


def find_task(folder: Path) -> TaskPictures:
    """The pictures of a task by class."""
    inside = sorted(path.name for path in picture_source.subfolders(folder))
    if inside != sorted(PARTS):
        return TaskPictures(picture_source.find(folder), None)
    train, test = (picture_source.find(folder / part) for part in PARTS)
    if list(train.classes) != list(test.classes):
        odd = sorted(set(train.classes) ^ set(test.classes))[0]
        raise RivalsError(
            f"The class '{odd}' of {folder} is only in one of the folders train and test; both "
            "need the same classes."
        )
    return TaskPictures(train, test)


def load_task(task: TaskPictures, shape: Shape) -> LoadedTask:
    """Decode the pictures of a task."""
    examples = read_part(task.train, shape)
    test = None if task.test is None else read_part(task.test, shape)
    return LoadedTask(tuple(task.train.classes), examples, test)


def read_part(source: PictureSource, shape: Shape) -> Examples:
    """Decode pictures. In a folder some may be unreadable or there twice; a dataset is as it is."""
    is_folder = isinstance(source.place, Path)
    fewest = 2 if is_folder else 0
    found = picture_source.read(source, shape, repeats=not is_folder, fewest=fewest)
    if found.left_out and not is_folder:
        first = found.left_out[0]
        raise RivalsError(f"Picture {first.path} of {source.place} cannot be used: {first.why}")
    return Examples(torch.from_numpy(found.images), torch.from_numpy(found.labels))


def fingerprint(root: Path, tasks: dict[str, TaskPictures]) -> str:
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
