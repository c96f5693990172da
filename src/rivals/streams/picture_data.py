"""What is accepted wherever pictures are given: a folder, a dataset or arrays.

"photos/"                        a folder with a subfolder for each class
(images, labels)                 two arrays
[(picture, label), …]            any map-style dataset, such as those of torch and torchvision
datasets.Dataset                 of Hugging Face, whose columns are found by their types
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rivals.errors import RivalsError
from rivals.io.sounds import is_sound
from rivals.streams import picture_source
from rivals.streams.hugging_face import HuggingFaceItems
from rivals.streams.own_streams import (
    Labels,
    checked_arrays,
    checked_dataset,
    class_names,
    sample_of,
)
from rivals.streams.picture_source import PictureSource

PictureData: TypeAlias = Any


def open_source(
    data: PictureData,
    name: str,
    classes: Sequence[str] | None,
    fewest: int = 2,
    aside: Sequence[str] = (),
) -> PictureSource:
    """The pictures in `data` by class, or its sounds.

    Args:
        data: One of the above.
        name: What messages call it.
        classes: Names of the classes, where labels are numbers.
        fewest: How many classes, and pictures of a class, there must be.
        aside: Columns of a Hugging Face dataset that hold no labels.
    """
    if isinstance(data, str | os.PathLike):
        if classes is not None:
            raise RivalsError("classes are for arrays and datasets; a folder names its own.")
        return picture_source.find(Path(data), fewest)
    if isinstance(data, tuple) and len(data) == 2:
        images, given = checked_arrays(data, name)
        return from_items(name, Labels(given, classes, name), lambda item: images[item], fewest)
    dataset = checked_dataset(data, name, aside)
    if isinstance(dataset, HuggingFaceItems):
        given = dataset.labels
    else:
        given = [sample_of(dataset, index, name)[1] for index in range(len(dataset))]
    named = class_names(dataset) if classes is None else classes
    source = from_items(
        name, Labels(given, named, name), lambda item: sample_of(dataset, item, name)[0], fewest
    )
    if is_sound(source.get(source.items[0])):
        return picture_source.with_sounds(source)
    return source


def from_items(
    name: str, labels: Labels, get: Callable[[int], Any], fewest: int = 2
) -> PictureSource:
    """The pictures of a dataset or of an array, by the class of each item."""
    numbers = labels.tensor.tolist()
    classes: dict[str, list[Any]] = {
        picture_source.named(label, "class"): [] for label in labels.classes
    }
    names = list(classes)
    for item, number in enumerate(numbers):
        classes[names[number]].append(item)
    if len(classes) < fewest:
        raise RivalsError(f"'{name}' has one class, '{names[0]}', but a task needs at least two.")
    for label, items in classes.items():
        picture_source.check_enough(name, label, len(items), fewest=fewest)
    return PictureSource(name, classes, [], get)
