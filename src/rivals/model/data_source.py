"""What a model learns from, or is tested with: a folder, a dataset or arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rivals.errors import RivalsError
from rivals.streams import picture_source
from rivals.streams.own_streams import (
    Labels,
    check_dataset,
    checked_arrays,
    class_names,
    sample_of,
)
from rivals.streams.picture_source import PictureSource

# A folder with a subfolder for each class; a map-style dataset of (picture, label); or a pair of
# arrays, (images, labels).
PictureData: TypeAlias = Any


def open_source(
    data: PictureData, name: str, classes: Sequence[str] | None, fewest: int = 2
) -> PictureSource:
    """The pictures in `data` by class; `name` is what messages call the task."""
    if isinstance(data, str | os.PathLike):
        if classes is not None:
            raise RivalsError("classes are for arrays and datasets; a folder names its own.")
        return picture_source.find(Path(data), fewest)
    if isinstance(data, tuple) and len(data) == 2:
        images, given = checked_arrays(data, name)
        return picture_source.from_items(
            name, Labels(given, classes, name), lambda item: images[item], fewest
        )
    check_dataset(data, name)
    given = [sample_of(data, index, name)[1] for index in range(len(data))]
    named = class_names(data) if classes is None else classes
    return picture_source.from_items(
        name, Labels(given, named, name), lambda item: sample_of(data, item, name)[0], fewest
    )


def task_name(data: PictureData, name: str | None) -> str:
    """The name of a task: as given, or like its folder; arrays and datasets need one."""
    if name is not None and not isinstance(name, str):
        raise RivalsError(
            f"The name of the task is of type {type(name).__name__}, but text was expected; images "
            "and labels are given as one pair, (images, labels)."
        )
    if name:
        return name
    if isinstance(data, str | os.PathLike):
        return os.path.basename(os.path.abspath(data)) or "task"
    raise RivalsError("Arrays and datasets have no name; give the task one with name=.")
