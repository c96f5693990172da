"""What a model learns from, or is tested with, and what a task is called."""

from __future__ import annotations

import os

from rivals.errors import RivalsError
from rivals.model.lesson_checks import folder_name
from rivals.streams.picture_data import PictureData, open_source

__all__ = ["PictureData", "open_source", "task_name"]


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
        return folder_name(data)
    raise RivalsError("Arrays and datasets have no name; give the task one with name=.")
