"""Streams that are made of one set of pictures: by classes, by domain, or by time.

    by classes   other classes in every task             cat dog │ owl duck │ car bus
    by domain    the same classes, pictures of another   cat dog by day │ cat dog by night
                 kind in every task
    by time      pictures in their order, cut into       cat dog │ cat owl dog │ owl car
                 parts; each has the classes it has

The pictures are anything of picture_data.py. They are decoded when their task is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from rivals.errors import RivalsError
from rivals.io.pictures import Shape
from rivals.seeds import Seed
from rivals.streams.class_groups import class_groups, class_order
from rivals.streams.folder_stream import TaskPictures, load_task
from rivals.streams.hugging_face import HuggingFaceItems, is_hugging_face
from rivals.streams.own_streams import (
    DatasetStream,
    Splitting,
    check_size,
    shape_of,
    task_names,
)
from rivals.streams.picture_data import PictureData, open_source
from rivals.streams.picture_source import PictureSource
from rivals.streams.stream import Stream
from rivals.streams.task import Preprocessing

SIDE = 32  # pixels, of what lies in a folder
FEWEST = 3  # pictures of a class in a part of the time: to train, to validate and to test with

# What a picture belongs to: the name of a column, one value for each picture, or a function of a
# picture's place: its number in a dataset, or its path in a folder.
Values: TypeAlias = "str | Sequence[Any] | Callable[[Any], Any]"


@dataclass(frozen=True)
class BuiltStream:
    """What all of these streams are told."""

    name: str
    size: int | None
    test_share: float
    validation_share: float
    preprocessing: Preprocessing | None
    seed: int

    def __post_init__(self) -> None:
        check_size(self.size)

    def of(self, tasks: Mapping[str, TaskPictures], subset: str = "") -> Stream:
        """The stream of these tasks, in their order."""
        parts = [part for task in tasks.values() for part in (task.train, task.test) if part]
        shape = self._shape(parts)
        if self.size is None:
            tasks = {name: task.of_size(shape) for name, task in tasks.items()}
        loaders = {name: cache(partial(load_task, task, shape)) for name, task in tasks.items()}
        made = DatasetStream(
            self.name, shape, "", loaders, Splitting(self.test_share, self.validation_share),
            self.preprocessing, Seed(self.seed),
        )  # fmt: skip
        made.sound, made.subset = parts[0].sound, subset
        return made

    def _shape(self, parts: Sequence[PictureSource]) -> Shape:
        """As `size` says; else as the pictures are, which must be of one size then."""
        first = parts[0]
        if first.sound is not None:
            return 1, self.size or SIDE, self.size or SIDE
        if isinstance(first.place, Path):
            return 3, self.size or SIDE, self.size or SIDE
        ones = [(items[0], part) for part in parts for items in part.classes.values() if items]
        shapes = [shape_of(part.get(item), str(part.place)) for item, part in ones]
        channels, (_, height, width) = max(shape[0] for shape in shapes), shapes[0]
        return channels, self.size or height, self.size or width


# By classes ---------------------------------------------------------------------------------------


def stream_by_classes(
    data: PictureData,
    classes_per_task: int | Sequence[int],
    order: int | Sequence[str] | None,
    test: PictureData | None,
    names: Sequence[str] | None,
    classes: Sequence[str] | None,
    built: BuiltStream,
) -> Stream:
    """See `Stream.by_classes`."""
    source, held = _open(data, test, classes, "the pictures")
    groups = class_groups(class_order(list(source.classes), order), classes_per_task)
    tasks = {}
    for name, group in zip(task_names(names, len(groups)), groups, strict=True):
        own = held and held.only({label: held.classes[label] for label in group})
        train = source.only({label: source.classes[label] for label in group})
        tasks[name] = TaskPictures(train, own)
    return built.of(tasks)


# By domain ----------------------------------------------------------------------------------------


def stream_by_domain(
    data: PictureData | Mapping[str, PictureData] | Sequence[PictureData],
    domains: Values | None,
    test: Any,
    names: Sequence[str] | None,
    classes: Sequence[str] | None,
    built: BuiltStream,
) -> Stream:
    """See `Stream.by_domain`."""
    if domains is None:
        tasks = _given_domains(data, test, names, classes)
    else:
        tasks = _found_domains(data, domains, test, names, classes)
    wanted, first = None, ""
    for name, task in tasks.items():
        found = set(task.train.classes)
        if wanted is not None and found != wanted:
            odd = sorted(found ^ wanted)[0]
            raise RivalsError(
                f"The class '{odd}' is only in one of the domains '{first}' and '{name}', but all "
                "need the same classes; Stream.by_time and from_datasets take others."
            )
        wanted, first = wanted or found, first or name
    return built.of(_as_one_reader(tasks))


def _given_domains(
    data: Any, test: Any, names: Sequence[str] | None, classes: Sequence[str] | None
) -> dict[str, TaskPictures]:
    """A set of pictures for each domain."""
    if isinstance(data, Mapping) and names is None:
        names = [str(name) for name in data]
    if not isinstance(data, Mapping | list):
        raise RivalsError(
            "One dataset was given and no domains; say with domains= what each picture belongs "
            "to, or give a dataset for each domain."
        )
    chosen = task_names(names, len(data))
    parts = list(data.values()) if isinstance(data, Mapping) else list(data)
    tests: list[Any] = [None] * len(parts)
    if isinstance(test, Mapping) and isinstance(data, Mapping):
        tests = [test.get(name) for name in data]
    elif test is not None:
        tests = list(test)
    if len(tests) != len(parts) or (test is not None and None in tests):
        raise RivalsError(f"There are {len(parts)} domains, so test needs one entry for each.")
    return {
        name: TaskPictures(*_open(part, held, classes, name))
        for name, part, held in zip(chosen, parts, tests, strict=True)
    }


def _found_domains(
    data: PictureData, domains: Values, test: Any, names: Sequence[str] | None,
    classes: Sequence[str] | None,
) -> dict[str, TaskPictures]:  # fmt: skip
    """One set of pictures, taken apart by what each belongs to."""
    if test is not None and not (isinstance(domains, str) or callable(domains)):
        raise RivalsError(
            "domains has a value for each picture, but none for the pictures of test; give the "
            "name of a column or a function."
        )
    aside = [domains] if isinstance(domains, str) else []
    source, held = _open(data, test, classes, "the pictures", aside)
    values = _values(data, source, domains, "domains")
    others = _values(test, held, domains, "domains") if held else {}
    found = _in_order(set(values.values()))
    chosen = task_names([str(each) for each in found] if names is None else names, len(found))
    tasks = {}
    for name, domain in zip(chosen, found, strict=True):
        train = source.where(values, domain)
        own = held and held.where(others, domain)
        present = {label: items for label, items in train.classes.items() if items}
        kept = own and own.only({label: own.classes[label] for label in present})
        tasks[name] = TaskPictures(train.only(present), kept)
    return tasks


def _in_order(domains: set[Any]) -> list[Any]:
    """Numbers as numbers; what cannot be compared as words."""
    try:
        return sorted(domains)
    except TypeError:
        return sorted(domains, key=str)


def _as_one_reader(tasks: dict[str, TaskPictures]) -> dict[str, TaskPictures]:
    """Sounds of all domains are read as long as the longest of them ask for."""
    sounds = [task.train.sound for task in tasks.values()]
    longest = max((each for each in sounds if each), key=lambda each: each.seconds, default=None)
    return {name: task.read_as(longest, "the stream") for name, task in tasks.items()}


# By time ------------------------------------------------------------------------------------------


def stream_by_time(
    data: PictureData,
    tasks: int,
    times: Values | None,
    names: Sequence[str] | None,
    classes: Sequence[str] | None,
    built: BuiltStream,
) -> Stream:
    """See `Stream.by_time`."""
    aside = [times] if isinstance(times, str) else []
    source = open_source(data, "the pictures", classes, fewest=1, aside=aside)
    if times is None and isinstance(source.place, Path):
        raise RivalsError(
            f"The files in {source.place} have no order in time; say with times= when each was "
            "made, for example times=os.path.getmtime."
        )
    values = {item: item for item in source.items}
    if times is not None:
        values = _values(data, source, times, "times")
    parts = _in_time(values, tasks)
    chosen, found, left = task_names(names, tasks), {}, 0
    for number, name in enumerate(chosen):
        part = source.where(parts, number)
        kept = {label: items for label, items in part.classes.items() if len(items) >= FEWEST}
        left += part.count - sum(map(len, kept.values()))
        if len(kept) < 2:
            raise RivalsError(
                f"The task '{name}' has {len(kept)} of the classes with {FEWEST} pictures or more, "
                f"but needs two; cut the time into fewer than {tasks} tasks."
            )
        found[name] = TaskPictures(part.only(kept), None)
    few = f"{left:,} pictures left out, of classes with fewer than {FEWEST} in their task"
    return built.of(found, few if left else "")


def _in_time(values: Mapping[Any, Any], tasks: int) -> dict[Any, int]:
    """The task of each item: parts of equal numbers, but for items of one time, which stay
    together."""
    try:
        moments = sorted(set(values.values()))
    except TypeError as error:
        raise RivalsError(
            f"times cannot be put in order ({error}); give numbers, dates or words of one kind."
        ) from error
    if any(each != each for each in moments):
        raise RivalsError("times has entries that are no numbers; give every picture a time.")
    if not 2 <= tasks <= len(moments):
        raise RivalsError(
            f"tasks is {tasks}, but the pictures are of {len(moments)} different times; use 2 to "
            f"{len(moments)}."
        )
    places = {moment: place for place, moment in enumerate(moments)}
    counts = np.bincount([places[value] for value in values.values()], minlength=len(moments))
    middle = counts.cumsum() - counts / 2  # how many come before half of a moment's pictures
    part = np.minimum(middle * tasks // counts.sum(), tasks - 1).astype(int)
    return {item: int(part[places[value]]) for item, value in values.items()}


# Both ---------------------------------------------------------------------------------------------


def _open(
    data: PictureData, test: PictureData | None, classes: Sequence[str] | None, name: str,
    aside: Sequence[str] = (),
) -> tuple[PictureSource, PictureSource | None]:  # fmt: skip
    """The pictures to learn from, and those to test with, with the same classes."""
    source = open_source(data, name, classes, fewest=1, aside=aside)
    if test is None:
        return source, None
    held = open_source(test, f"the test of {name}", classes, fewest=1, aside=aside)
    for label in held.classes:
        if label not in source.classes:
            raise RivalsError(
                f"The class '{label}' of {held.place} is in none of the pictures to learn from; "
                "test with the same classes."
            )
    held = held.only({label: held.classes.get(label, []) for label in source.classes})
    return source, held.read_as(source.sound, "the stream")


def _values(data: PictureData, source: PictureSource, given: Values, what: str) -> dict[Any, Any]:
    """The value of each item of a source."""
    if isinstance(given, str):
        if not is_hugging_face(data):
            raise RivalsError(
                f"{what} is '{given}', the name of a column, but only datasets of Hugging Face "
                "have some; give one value for each picture, or a function."
            )
        given = HuggingFaceItems(data, str(source.place), [given]).column(given)
    if callable(given):
        return {item: given(item) for item in source.items}
    if isinstance(source.place, Path):
        raise RivalsError(
            f"{what} has a value for each picture, but the files of a folder have no numbers; give "
            "a function of a path."
        )
    listed = _plain(given)
    if len(listed) != source.count:
        raise RivalsError(
            f"{what} has {len(listed)} values, but there are {source.count} pictures; give one for "
            "each."
        )
    return {item: listed[item] for item in source.items}


def _plain(values: Iterable[Any]) -> list[Any]:
    """Values of a list, an array or a tensor, which can be compared and put into a set."""
    return list(values.tolist() if hasattr(values, "tolist") else values)
