"""Streams of a user's own data: arrays, or torch datasets.

Every task is loaded into the same form (`LoadedTask`), then `TaskList` splits it into training,
validation and test examples. Folders of pictures (folder_stream.py) end there, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import DataLoader, IterableDataset

from rivals.errors import RivalsError
from rivals.io.pictures import array_shape, as_bytes, channels_first, to_pixels
from rivals.seeds import Seed
from rivals.streams.hugging_face import HuggingFaceItems, is_hugging_face
from rivals.streams.splits import limit
from rivals.streams.stream import Stream, StreamItem, check_share, stratified
from rivals.streams.task import Examples, Preprocessing, Task, centred

SMALLEST, LARGEST = 4, 512  # pixels a side


@dataclass(frozen=True)
class LoadedTask:
    """The examples of a task before they are split; `test` is None where no test set was given."""

    classes: tuple[str, ...]
    examples: Examples
    test: Examples | None


@dataclass(frozen=True)
class Splitting:
    """How the examples of a task become training, validation and test examples."""

    test_share: float  # used where no test set was given
    validation_share: float  # of what the test examples leave
    per_class: int = 0  # at most so many training examples a class; 0 = all

    def __post_init__(self) -> None:
        check_share("test_share", self.test_share)
        check_share("validation_share", self.validation_share)
        if self.per_class < 0:
            raise RivalsError(f"per_class is {self.per_class}; use 0 for all.")


class TaskList(Stream):
    """A stream of tasks that are loaded one by one, when they are asked for."""

    def __init__(
        self,
        name: str,
        input_shape: tuple[int, int, int],
        fingerprint: str,
        tasks: Mapping[str, Callable[[], LoadedTask]],
        splitting: Splitting,
        preprocessing: Preprocessing | None,
        seed: Seed,
    ) -> None:
        self.name, self.input_shape, self.fingerprint = name, input_shape, fingerprint
        self.tasks, self.splitting, self.seed = tasks, splitting, seed
        channels = input_shape[0]
        self.preprocessing = preprocessing or centred(channels)
        if splitting.per_class:
            self.subset = f"at most {splitting.per_class:,} training images a class used"

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> StreamItem:
        name = list(self.tasks)[self.position(index)]
        loaded, seed, share = self.tasks[name](), self.seed.child("task", name), self.splitting
        learn, test = loaded.examples, loaded.test
        check_enough(name, loaded)
        if test is None:
            rest, held = stratified(learn.labels, share.test_share, seed.child("test"))
            learn, test = learn.subset(rest), learn.subset(held)
        kept, held = stratified(learn.labels, share.validation_share, seed.child("validation"))
        kept = limit(kept, learn.labels, share.per_class, seed.child("per-class"))
        train, validation = learn.subset(kept), learn.subset(held)
        return StreamItem(Task(name, loaded.classes, train, validation, self.preprocessing), test)


def check_enough(name: str, loaded: LoadedTask) -> None:
    """A task needs two classes, and a class an example for every split."""
    if len(loaded.classes) < 2:
        raise RivalsError(
            f"The task '{name}' has one class, '{loaded.classes[0]}', but needs at least two."
        )
    least = 3 if loaded.test is None else 2
    counts = loaded.examples.labels.bincount(minlength=len(loaded.classes)).tolist()
    for label, count in zip(loaded.classes, counts, strict=True):
        if count < least:
            raise RivalsError(
                f"The class '{label}' of the task '{name}' has {count} examples, but needs at "
                f"least {least}, one for each of training, validation"
                + (" and test." if loaded.test is None else ".")
            )


def task_names(names: Sequence[str] | None, count: int) -> list[str]:
    """`names`, or task-1, task-2, …; each once."""
    chosen = [f"task-{k + 1}" for k in range(count)] if names is None else [*map(str, names)]
    if count == 0:
        raise RivalsError("There are no tasks; give at least one.")
    if len(chosen) != count or len(set(chosen)) != count or not all(chosen):
        raise RivalsError(f"names is {chosen}, but must hold {count} different names.")
    return chosen


def per_task(what: str, values: Sequence[Any] | None, count: int) -> Sequence[Any]:
    """One value for each task, or None for all."""
    if values is None:
        return [None] * count
    if len(values) != count:
        raise RivalsError(f"{what} has {len(values)} entries, but there are {count} tasks.")
    return values


class Labels:
    """The labels of a task as they are given, and as numbers that count from 0 in the task."""

    def __init__(self, given: Sequence[Any], names: Sequence[str] | None, task: str) -> None:
        self.task = task
        plain = [_plain(label, task) for label in given]
        if len({type(label) for label in plain}) > 1:
            raise RivalsError(f"The labels of the task '{task}' are both numbers and words.")
        present = sorted(set(plain))
        if names is not None:
            for label in present:
                if not isinstance(label, int) or not 0 <= label < len(names):
                    raise RivalsError(
                        f"The task '{task}' has the label {label!r}, but its {len(names)} class "
                        f"names need labels from 0 to {len(names) - 1}."
                    )
        self.numbers = {label: number for number, label in enumerate(present)}
        self.classes = tuple(str(label if names is None else names[label]) for label in present)
        if len(set(self.classes)) < len(self.classes):
            raise RivalsError(f"The task '{task}' has two classes of the same name.")
        self.tensor = self.encode(plain)

    def encode(self, given: Sequence[Any]) -> torch.Tensor:
        """Labels as numbers; a class without training examples is refused."""
        try:
            found = [self.numbers[_plain(label, self.task)] for label in given]
        except KeyError as error:
            raise RivalsError(
                f"The test examples of the task '{self.task}' have the label {error.args[0]!r}, "
                "but none of its training examples has it."
            ) from error
        return torch.tensor(found, dtype=torch.int64)


def _plain(label: Any, task: str) -> Any:
    """A label as a number or a word of Python."""
    value = label
    if hasattr(label, "item"):  # of torch or numpy
        with suppress(RuntimeError, ValueError):
            value = label.item()
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        raise RivalsError(
            f"The task '{task}' has the label {value!r}, but labels are whole numbers or words, "
            "and regression is not learned; cut such numbers into classes, for example with "
            "numpy.digitize."
        )
    if isinstance(value, list | tuple | set | dict) or hasattr(value, "__len__"):
        raise _several_labels(task, f"the label {str(value)[:40]!r} of one picture")
    raise RivalsError(
        f"The task '{task}' has the label {value!r} of type {type(value).__name__}, but labels "
        "are whole numbers or words."
    )


def _several_labels(task: str, found: str) -> RivalsError:
    return RivalsError(
        f"The task '{task}' has {found}, but a picture has one class here and multi-label data are "
        "not learned; rows with a single 1 become labels with labels.argmax(1)."
    )


# Arrays -------------------------------------------------------------------------------------------


def stream_of_arrays(
    tasks: Sequence[tuple[ArrayLike, ArrayLike]],
    test: Sequence[tuple[ArrayLike, ArrayLike]] | None,
    names: Sequence[str] | None,
    classes: Sequence[Sequence[str]] | None,
    name: str,
    test_share: float,
    validation_share: float,
    preprocessing: Preprocessing | None,
    seed: int,
) -> Stream:
    """See `Stream.from_arrays`."""
    splitting = Splitting(test_share, validation_share)
    chosen, digest = task_names(names, len(tasks)), hashlib.sha256()
    tests, named = per_task("test", test, len(tasks)), per_task("classes", classes, len(tasks))
    loaded: dict[str, LoadedTask] = {}
    for task, pair, held, words in zip(chosen, tasks, tests, named, strict=True):
        images, given = checked_arrays(pair, task)
        labels = Labels(given, words, task)
        extra = None
        if held is not None:
            pixels, given = checked_arrays(held, task)
            extra = Examples(pixels, labels.encode(given))
        loaded[task] = LoadedTask(labels.classes, Examples(images, labels.tensor), extra)
        check_enough(task, loaded[task])
        _add(digest, task, loaded[task])
    shapes = {
        tuple(part.images.shape[1:]): task
        for task, each in loaded.items()
        for part in (each.examples, each.test)
        if part is not None
    }
    if len(shapes) > 1:
        (one, first), (other, second) = list(shapes.items())[:2]
        raise RivalsError(
            f"The images of '{first}' are {one}, those of '{second}' {other} as (channels, height, "
            "width); bring them to one size, or use Stream.from_datasets with size=."
        )
    channels, height, width = next(iter(shapes))
    return TaskList(
        name, (channels, height, width), f"arrays:{digest.hexdigest()[:16]}",
        {task: lambda each=each: each for task, each in loaded.items()},  # type: ignore[misc]
        splitting, preprocessing, Seed(seed),
    )  # fmt: skip


def checked_arrays(pair: tuple[ArrayLike, ArrayLike], task: str) -> tuple[torch.Tensor, list[Any]]:
    """Images (n, channels, height, width) as bytes, and as many labels."""
    try:
        images, labels = (np.asarray(each) for each in pair)
    except (TypeError, ValueError) as error:
        given = pair[1] if isinstance(pair, list | tuple) and len(pair) == 2 else None
        if isinstance(given, list | tuple) and any(
            isinstance(each, list | tuple) for each in given
        ):
            raise _several_labels(task, "lists of labels") from error
        raise RivalsError(
            f"The task '{task}' is not a pair of arrays, (images, labels) ({error})."
        ) from error
    if images.ndim in (3, 4) and labels.ndim == 2 and len(images) == len(labels):
        raise _several_labels(task, f"labels of shape {labels.shape}")
    if images.ndim not in (3, 4) or labels.ndim != 1:
        raise RivalsError(
            f"The task '{task}' has images of shape {images.shape} and labels of shape "
            f"{labels.shape}; expected (n, height, width[, channels]) and (n,)."
        )
    if len(images) != len(labels) or len(images) == 0:
        raise RivalsError(
            f"The task '{task}' has {len(images)} images and {len(labels)} labels, but needs as "
            "many of both, and at least one."
        )
    pixels = as_bytes(images, f"The task '{task}' has {images.dtype} images")
    copied = np.array(channels_first(pixels, batch=True), order="C")
    return torch.from_numpy(copied), labels.tolist()


def _add(digest: Any, task: str, loaded: LoadedTask) -> None:
    """What a fingerprint is made of: names, shapes, pixels and labels."""
    digest.update(repr((task, loaded.classes)).encode())
    for part in (loaded.examples, loaded.test):
        if part is not None:
            digest.update(repr(tuple(part.images.shape)).encode())
            digest.update(part.images.numpy().tobytes())
            digest.update(part.labels.numpy().tobytes())


# Datasets -----------------------------------------------------------------------------------------


def stream_of_datasets(
    datasets: Sequence[Any],
    test: Sequence[Any] | None,
    size: int | None,
    names: Sequence[str] | None,
    classes: Sequence[Sequence[str]] | None,
    name: str,
    test_share: float,
    validation_share: float,
    preprocessing: Preprocessing | None,
    seed: int,
) -> Stream:
    """See `Stream.from_datasets`."""
    check_size(size)
    splitting = Splitting(test_share, validation_share)
    chosen = task_names(names, len(datasets))
    tests, named = (
        per_task("test", test, len(datasets)),
        per_task("classes", classes, len(datasets)),
    )
    datasets = [checked_dataset(data, task) for task, data in zip(chosen, datasets, strict=True)]
    tests = [
        None if held is None else checked_dataset(held, task)
        for task, held in zip(chosen, tests, strict=True)
    ]
    shapes = [shape_of(sample_of(dataset, 0, task)[0], task) for task, dataset in
              zip(chosen, datasets, strict=True)]  # fmt: skip
    channels, (_, height, width) = max(shape[0] for shape in shapes), shapes[0]
    shape = (channels, height, width) if size is None else (channels, size, size)
    tasks = {
        task: cache(_loader(task, dataset, held, words, shape, size is not None))
        for task, dataset, held, words in zip(chosen, datasets, tests, named, strict=True)
    }
    return DatasetStream(name, shape, "", tasks, splitting, preprocessing, Seed(seed))


class DatasetStream(TaskList):
    """Its fingerprint is that of the decoded pictures, so asking for it reads all of them once."""

    _fingerprint: str

    @property
    def fingerprint(self) -> str:
        if not self._fingerprint:
            digest = hashlib.sha256()
            for task, load in self.tasks.items():
                _add(digest, task, load())
            self._fingerprint = f"datasets:{digest.hexdigest()[:16]}"
        return self._fingerprint

    @fingerprint.setter
    def fingerprint(self, value: str) -> None:
        self._fingerprint = value


def check_size(size: int | None) -> None:
    if size is not None and not SMALLEST <= size <= LARGEST:
        raise RivalsError(
            f"size is {size}, but pictures have {SMALLEST} to {LARGEST} pixels a side."
        )


def checked_dataset(dataset: Any, task: str, aside: Sequence[str] = ()) -> Any:
    """A map-style dataset of (picture, label), which a dataset of Hugging Face becomes."""
    found = f"The dataset of the task '{task}' is a {type(dataset).__name__}"
    if isinstance(dataset, Mapping):
        raise RivalsError(
            f"{found} of {', '.join(map(repr, dataset))}, but one dataset was expected; give one "
            "of them."
        )
    if is_hugging_face(dataset) and not hasattr(dataset, "__len__"):
        raise RivalsError(
            f"{found}, which is streamed and has no length; take a part of it, for example "
            "Dataset.from_list(list(dataset.take(1000)), features=dataset.features)."
        )
    if isinstance(dataset, IterableDataset) or hasattr(dataset, "__next__"):
        raise RivalsError(
            f"{found}, which is read once and in one order; take a part of it as a list, for "
            "example list(itertools.islice(dataset, 1000))."
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        beside = "; give its dataset, loader.dataset" if isinstance(dataset, DataLoader) else ""
        raise RivalsError(
            f"{found}, but a map-style dataset was expected, with __len__ and __getitem__{beside}."
        )
    if len(dataset) == 0:
        raise RivalsError(f"The dataset of the task '{task}' is empty.")
    return HuggingFaceItems(dataset, task, aside) if is_hugging_face(dataset) else dataset


def sample_of(dataset: Any, index: int, task: str) -> tuple[Any, Any]:
    sample = dataset[index]
    if not isinstance(sample, tuple | list) or len(sample) < 2:
        raise RivalsError(
            f"Example {index} of the task '{task}' is a {type(sample).__name__}, but a pair "
            "(picture, label) was expected."
        )
    return sample[0], sample[1]


def shape_of(picture: Any, task: str) -> tuple[int, int, int]:
    """(channels, height, width) of a picture as a dataset has it."""
    if hasattr(picture, "getbands"):  # a PIL image
        grey = picture.mode in ("1", "L", "LA", "I", "I;16")
        return (1 if grey else 3, picture.height, picture.width)
    values = np.asarray(picture)
    return array_shape(values, f"A picture of the task '{task}'")


def _loader(
    task: str,
    dataset: Any,
    held: Any,
    names: Sequence[str] | None,
    shape: tuple[int, int, int],
    resize: bool,
) -> Callable[[], LoadedTask]:
    def load() -> LoadedTask:
        images, given = _decoded(dataset, task, shape, resize)
        labels = Labels(given, class_names(dataset) if names is None else names, task)
        test = None
        if held is not None:
            pixels, given = _decoded(held, task, shape, resize)
            test = Examples(torch.from_numpy(pixels), labels.encode(given))
        return LoadedTask(labels.classes, Examples(torch.from_numpy(images), labels.tensor), test)

    return load


def class_names(dataset: Any) -> Sequence[str] | None:
    """The attribute `classes` of a dataset, or of the one that it is a part of."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset  # torch.utils.data.Subset
    return getattr(dataset, "classes", None)


def _decoded(
    dataset: Any, task: str, shape: tuple[int, int, int], resize: bool
) -> tuple[NDArray[np.uint8], list[Any]]:
    images, labels = np.empty((len(dataset), *shape), np.uint8), []
    for index in range(len(dataset)):
        picture, label = sample_of(dataset, index, task)
        _, height, width = shape_of(picture, task)
        if not resize and (height, width) != shape[1:]:
            raise RivalsError(
                f"Picture {index} of the task '{task}' has {width}×{height} pixels, the first one "
                f"of the stream {shape[2]}×{shape[1]}; give size=, to which all are brought."
            )
        images[index] = to_pixels(picture, shape)
        labels.append(label)
    return images, labels
