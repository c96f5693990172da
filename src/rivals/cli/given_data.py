"""What is named on the command line to learn from: a folder, or `module:name`, which is none.

`my_data:screws` is a dataset or arrays in `my_data.py`, or a function that returns such. The module
is imported, which runs it: a name is taken from the command line only, never from a file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rivals.registry import Registry, imports_allowed

NAMED = re.compile(r"[^\W\d]\w*(\.\w+)*:\w+")
datasets: Registry[Any] = Registry("dataset")


def given_data(word: str) -> Any:
    """A path, or what a module holds; a folder of that name comes first."""
    if not is_named(word):
        return Path(word)
    with imports_allowed([word]):
        found = datasets[word]
    return found if hasattr(found, "__getitem__") or not callable(found) else found()


def given_name(word: str, name: str | None) -> str | None:
    """The name of the task: as given, or that in the module."""
    return word.partition(":")[2] if name is None and is_named(word) else name


def is_named(word: str) -> bool:
    return NAMED.fullmatch(word) is not None and not os.path.lexists(word)
