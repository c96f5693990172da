"""A stream of tasks. The runner walks through it; a method only sees the task it is given."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.io.spectrogram import SoundSettings
from rivals.registry import Registry
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.label_splits import fold_places, stratified_places
from rivals.streams.task import Examples, Preprocessing, Task

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from rivals.streams.picture_data import PictureData
    from rivals.streams.task_builders import Values

Source = TypeVar("Source")  # of a stream: see `as_benchmark`


@dataclass(frozen=True)
class StreamItem:
    """A task for the method, and its test examples, which only the evaluation uses.

    >>> from rivals.seeds import Seed
    >>> from rivals.streams.digits import Digits, DigitsSettings
    >>> item = Digits(DigitsSettings(), Seed(0))[0]
    >>> item.task.classes, len(item.test)
    (('0', '1'), 72)
    """

    task: Task
    test: Examples


class Stream(ABC):
    """A sequence of tasks: `len(stream)`, `stream[i]` and `for item in stream`.

    An item is made when it is asked for, so a long stream needs little memory. Streams of your own
    come from `from_arrays`, `from_datasets` or `from_folder`, where there is one set of pictures a
    task; from `by_classes`, `by_domain` or `by_time`, which make tasks of one set; or from a
    subclass that has the attributes below, `__len__` and `__getitem__`.

    >>> import numpy as np, rivals
    >>> rng = np.random.default_rng(0)
    >>> def task():
    ...     return rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 2
    >>> stream = rivals.Stream.from_arrays([task(), task()])
    >>> len(stream), stream.input_shape
    (2, (1, 8, 8))
    >>> [(item.task.name, len(item.task.train), len(item.test)) for item in stream]
    [('task-1', 28, 8), ('task-2', 28, 8)]
    """

    name: str
    input_shape: tuple[int, int, int]  # (channels, height, width)
    fingerprint: str  # of the data; stored in config.yaml, so a run resumes with the same data only
    subset: str = ""  # what a result on incomplete data must say: "150 of 500 images a class"
    sound: SoundSettings | None = None  # how its pictures were made, where they are sounds

    @abstractmethod
    def __len__(self) -> int:
        """The number of tasks. Only the runner uses it; a method never sees it."""

    @abstractmethod
    def __getitem__(self, index: int) -> StreamItem:
        """The item at `index`; always the same one."""

    def __iter__(self) -> Iterator[StreamItem]:
        return (self[index] for index in range(len(self)))

    def position(self, index: int) -> int:
        """`index` counted from the start; negative ones count from the end, as in a list."""
        if not -len(self) <= index < len(self):
            raise IndexError(
                f"The stream {self.name} has {len(self)} tasks, but not number {index}."
            )
        return index % len(self)

    @staticmethod
    def from_benchmark(name: str, *, seed: int = 0, **settings: Any) -> Stream:
        """The stream of a benchmark, with the settings that `rivals info --settings NAME` lists.

        Presets are those of `rivals.run`; here settings are what they are by themselves.

        >>> stream = Stream.from_benchmark("digits", tasks=2)
        >>> stream[0].task.classes, stream[1].task.classes
        (('0', '1', '2', '3', '4'), ('5', '6', '7', '8', '9'))
        """
        chosen = streams[name]
        return chosen.build(chosen.settings(**settings), Seed(seed).child("stream"))

    @staticmethod
    def from_arrays(
        tasks: Sequence[tuple[ArrayLike, ArrayLike]],
        test: Sequence[tuple[ArrayLike, ArrayLike]] | None = None,
        *,
        names: Sequence[str] | None = None,
        classes: Sequence[Sequence[str]] | None = None,
        name: str = "arrays",
        test_share: float = 0.2,
        validation_share: float = 0.1,
        preprocessing: Preprocessing | None = None,
        seed: int = 0,
    ) -> Stream:
        """A stream of (images, labels) pairs, one pair a task; arrays or tensors.

        Images are (n, height, width), (n, height, width, channels) or (n, channels, height, width),
        as bytes or as floats from 0 to 1. Labels are numbers or words. With `classes`, the names
        of a task's classes, label k means its name k. Without `test`, a share of each class is
        held out. Splits depend on `seed` only.

        >>> import numpy as np
        >>> images = np.random.default_rng(0).random((30, 3, 16, 16))
        >>> labels = np.array(["cat", "dog", "owl"] * 10)
        >>> stream = Stream.from_arrays([(images, labels)], names=["animals"])
        >>> stream[0].task.classes
        ('cat', 'dog', 'owl')
        """
        from rivals.streams.own_streams import stream_of_arrays

        return stream_of_arrays(
            tasks, test, names, classes, name, test_share, validation_share, preprocessing, seed
        )

    @staticmethod
    def from_datasets(
        datasets: Sequence[Any],
        test: Sequence[Any] | None = None,
        *,
        size: int | None = None,
        names: Sequence[str] | None = None,
        classes: Sequence[Sequence[str]] | None = None,
        name: str = "datasets",
        test_share: float = 0.2,
        validation_share: float = 0.1,
        preprocessing: Preprocessing | None = None,
        seed: int = 0,
    ) -> Stream:
        """A stream of map-style torch datasets of (picture, label), one dataset a task.

        Pictures are PIL images, tensors or arrays (bytes, or floats from 0 to 1), and all are
        brought to `size` × `size` pixels; without `size` they must be of one size. Class names come
        from `classes`, else from the attribute `classes` of a dataset, else from the labels. Use no
        random transforms: they change the data, and a stopped run would refuse to go on.

        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> pixels, labels = torch.rand(20, 1, 10, 10), torch.arange(20) % 2
        >>> stream = Stream.from_datasets([TensorDataset(pixels, labels)], size=8)
        >>> stream.input_shape, len(stream[0].task.train)
        ((1, 8, 8), 14)
        """
        from rivals.streams.own_streams import stream_of_datasets

        return stream_of_datasets(
            datasets, test, size, names, classes, name, test_share, validation_share,
            preprocessing, seed,
        )  # fmt: skip

    @staticmethod
    def from_folder(
        path: str | PathLike[str],
        *,
        size: int = 32,
        grey: bool = False,
        per_class: int = 0,
        test_share: float = 0.2,
        validation_share: float = 0.1,
        preprocessing: Preprocessing | None = None,
        seed: int = 0,
    ) -> Stream:
        """A stream of a folder of folders: PATH/task/class/picture.jpg.

        Tasks are in natural order ("task2" before "task10"). A task may have the folders `train`
        and `test` with its classes inside; else a share of each class is held out for the test.
        `per_class` limits the training pictures of a class; 0 means all.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> root = Path(tempfile.mkdtemp())
        >>> for red, place in enumerate(("task1/cat", "task1/dog", "task2/car", "task2/bus")):
        ...     (root / place).mkdir(parents=True)
        ...     for k in range(5):
        ...         Image.new("RGB", (40, 30), (50 * red, k, 0)).save(root / place / f"{k}.png")
        >>> [item.task.name for item in Stream.from_folder(root)]
        ['task1', 'task2']
        """
        from rivals.streams.folder_stream import FolderSettings, stream_of_folder

        settings = FolderSettings(
            size=size, grey=grey, per_class=per_class, test_share=test_share,
            validation_share=validation_share,
        )  # fmt: skip
        return stream_of_folder(path, settings, Seed(seed), preprocessing)

    @staticmethod
    def by_classes(
        data: PictureData,
        classes_per_task: int | Sequence[int] = 2,
        *,
        order: int | Sequence[str] | None = None,
        test: PictureData | None = None,
        size: int | None = None,
        names: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        name: str = "by-classes",
        test_share: float = 0.2,
        validation_share: float = 0.1,
        preprocessing: Preprocessing | None = None,
        seed: int = 0,
    ) -> Stream:
        """A stream in which every task has other classes of one set of pictures.

        Args:
            data: A folder with a subfolder for each class, a map-style dataset of (picture, label),
                a dataset of Hugging Face, or a pair of arrays, (images, labels).
            classes_per_task: The number of classes of a task, or a list of numbers, such as
                [50, 10, 10].
            order: Of the classes: a seed, or their names; by default as their labels are.
            test: Pictures to test with; without them `test_share` of each class is held out.
            size: Pixels a side; by default as the pictures are, 32 for a folder.
            names: Of the tasks; by default task-1, task-2 …
            classes: Names of the classes, where labels are numbers.
            name: Of the stream.
            test_share: Of each class, where there is no `test`.
            validation_share: Of what the test leaves.
            preprocessing: Scale, mean and deviation; by default to about −2 … 2.
            seed: Of the splits.

        >>> import numpy as np
        >>> images = np.random.default_rng(0).random((60, 8, 8))
        >>> labels = ["cat", "dog", "owl", "bee"] * 15
        >>> stream = Stream.by_classes((images, labels), order=["owl", "cat", "bee", "dog"])
        >>> [item.task.classes for item in stream]
        [('owl', 'cat'), ('bee', 'dog')]
        """
        from rivals.streams.task_builders import BuiltStream, stream_by_classes

        built = BuiltStream(name, size, test_share, validation_share, preprocessing, seed)
        return stream_by_classes(data, classes_per_task, order, test, names, classes, built)

    @staticmethod
    def by_domain(
        data: PictureData | Mapping[str, PictureData] | list[PictureData],
        domains: Values | None = None,
        *,
        test: Any = None,
        size: int | None = None,
        names: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        name: str = "by-domain",
        test_share: float = 0.2,
        validation_share: float = 0.1,
        preprocessing: Preprocessing | None = None,
        seed: int = 0,
    ) -> Stream:
        """A stream in which every task has the same classes, from another domain.

        Args:
            data: A dictionary or a list with the pictures of each domain; or, with `domains`, the
                pictures of all. Pictures are given as to `by_classes`.
            domains: The domain of each picture: one value for each, the name of a column of a
                Hugging Face dataset, or a function of a picture's number (in a folder: its path).
            test: Pictures to test with, in the same form.
            size, names, classes, name, test_share, validation_share, preprocessing, seed: As for
                `by_classes`; by default a task is called like its domain.

        >>> import numpy as np
        >>> def pictures():
        ...     return np.random.default_rng(0).random((40, 8, 8)), ["cat", "dog"] * 20
        >>> stream = Stream.by_domain({"day": pictures(), "night": pictures()})
        >>> [(item.task.name, item.task.classes) for item in stream]
        [('day', ('cat', 'dog')), ('night', ('cat', 'dog'))]
        >>> len(Stream.by_domain(pictures(), domains=["in"] * 20 + ["out"] * 20))
        2
        """
        from rivals.streams.task_builders import BuiltStream, stream_by_domain

        built = BuiltStream(name, size, test_share, validation_share, preprocessing, seed)
        return stream_by_domain(data, domains, test, names, classes, built)

    @staticmethod
    def by_time(
        data: PictureData,
        tasks: int = 5,
        *,
        times: Values | None = None,
        size: int | None = None,
        names: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        name: str = "by-time",
        test_share: float = 0.2,
        validation_share: float = 0.1,
        preprocessing: Preprocessing | None = None,
        seed: int = 0,
    ) -> Stream:
        """A stream of pictures in their order in time, cut into tasks of equal numbers.

        A task has the classes that occur in its time. A class with fewer than three pictures there
        is left out, which `stream.subset` says. Pictures of one moment stay together.

        Args:
            data: Pictures, given as to `by_classes`.
            tasks: How many.
            times: When each picture was made: numbers, dates or words that can be put in order, the
                name of a column, or a function, as the `domains` of `by_domain`; by default the
                pictures are in order.
            size, names, classes, name, test_share, validation_share, preprocessing, seed: As for
                `by_classes`.

        >>> import numpy as np
        >>> images = np.random.default_rng(0).random((60, 8, 8))
        >>> labels = ["cat", "dog"] * 15 + ["dog", "owl"] * 15
        >>> [item.task.classes for item in Stream.by_time((images, labels), tasks=2)]
        [('cat', 'dog'), ('dog', 'owl')]
        """
        from rivals.streams.task_builders import BuiltStream, stream_by_time

        built = BuiltStream(name, size, test_share, validation_share, preprocessing, seed)
        return stream_by_time(data, tasks, times, names, classes, built)


@dataclass(frozen=True)
class Benchmark:
    """How a stream is made: its settings class, a subclass of `rivals.Settings`, and the function
    that builds it from settings and a seed."""

    settings: type[Settings]
    build: Callable[[Any, Seed], Stream]


class NoSettings(Settings):
    """The settings of a stream that has none."""


def as_benchmark(source: Any, name: str) -> Benchmark:
    """A benchmark, a stream, or a function (or class) that returns a stream, as a benchmark.

    A function may have a parameter `seed`: then it gets a whole number below 2^31 that depends on
    the seed of the run.
    """
    if isinstance(source, Benchmark):
        return source
    if isinstance(source, Stream):
        return Benchmark(NoSettings, lambda settings, seed: source)
    if not callable(source):
        raise RivalsError(
            f"The benchmark '{name}' is of type {type(source).__name__}, but a Stream, a Benchmark "
            "or a function that returns a Stream was expected."
        )

    def build(settings: NoSettings, seed: Seed) -> Stream:
        takes_seed = "seed" in inspect.signature(source).parameters
        made = source(seed=seed.value % 2**31) if takes_seed else source()
        if not isinstance(made, Stream):
            raise RivalsError(
                f"The function of the benchmark '{name}' returned {type(made).__name__}, but a "
                "Stream was expected."
            )
        return made

    return Benchmark(NoSettings, build)


class StreamRegistry(Registry[Benchmark]):
    """Benchmarks by name; also `folder:PATH`, and `module:name` for a stream of your own.

    >>> import rivals
    >>> rivals.benchmarks["digits"].settings().tasks
    5
    >>> "cifar100" in rivals.benchmarks
    True
    """

    def __getitem__(self, name: str) -> Benchmark:
        if name.startswith("folder:"):
            from rivals.streams.folder_stream import folder_benchmark

            return folder_benchmark(name.removeprefix("folder:"))
        return as_benchmark(super().__getitem__(name), name)

    def register(self, name: str) -> Callable[[Source], Source]:
        """Add a benchmark, a stream, or a function that returns a stream."""

        def add(source: Source) -> Source:
            self._entries[name] = as_benchmark(source, name)
            return source

        return add


streams = StreamRegistry(
    "benchmark",
    {
        "cifar10": "rivals.streams.cifar_streams",
        "cifar100": "rivals.streams.cifar_streams",
        "cifar100-20": "rivals.streams.cifar_streams",
        "cifar100-incremental": "rivals.streams.cifar_streams",
        "digits": "rivals.streams.digits",
        "digits-permuted": "rivals.streams.digits",
        "five-datasets": "rivals.streams.five_datasets",
        "gaussians": "rivals.streams.gaussians",
        "omniglot-rotation": "rivals.streams.omniglot_rotation",
        "pmnist": "rivals.streams.pmnist",
        "pmnist-10": "rivals.streams.pmnist",
        "pmnist-1000": "rivals.streams.pmnist",
        "tiny-imagenet": "rivals.streams.tiny_imagenet_stream",
    },
)


def check_share(name: str, share: float) -> None:
    """A share of the examples that is held out."""
    if not 0 < share < 1:
        raise RivalsError(f"{name} is {share}, but must lie between 0 and 1.")


def stratified(labels: Tensor, share: float, seed: Seed) -> tuple[Tensor, Tensor]:
    """`stratified_places` as tensors."""
    kept, held = stratified_places(labels.numpy(), share, seed)
    return torch.from_numpy(kept), torch.from_numpy(held)


def folds(labels: Tensor, count: int, seed: Seed) -> Iterator[tuple[Tensor, Tensor]]:
    """`fold_places` as tensors."""
    for learned, tested in fold_places(labels.numpy(), count, seed):
        yield torch.from_numpy(learned), torch.from_numpy(tested)
