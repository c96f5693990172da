"""A `datasets.Dataset` of Hugging Face as a map-style dataset of (picture, label).

Its columns are found by their types: one of pictures or of sounds, and one of classes. Where
several would do, the user keeps one with `select_columns`. The package `datasets` is not imported
here: who has such a dataset has imported it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rivals.errors import RivalsError

ITEMS = (("Image", "Audio"), ("Array2D", "Array3D"))  # types of columns, the better ones first
CLASSES = "ClassLabel"
LISTS = ("List", "LargeList", "Sequence", "list", "tuple")
WORDS = ("string", "large_string", "int", "uint", "bool")  # begin the types of plain labels


def is_hugging_face(data: object) -> bool:
    """Whether this is a `datasets.Dataset`, or one that is streamed."""
    return type(data).__module__.partition(".")[0] == "datasets" and hasattr(data, "features")


class HuggingFaceItems:
    """Pictures (or sounds) and labels; `classes` are the names of the labels, where they have some.

    `aside` are columns that hold no labels, for example those of a domain or a time.
    """

    def __init__(self, dataset: Any, task: str, aside: Sequence[str] = ()) -> None:
        types = {name: kind for name, kind in dataset.features.items() if name not in aside}
        found = {name: type(kind).__name__ for name, kind in types.items()}
        groups = [[name for name in found if found[name] in kinds] for kinds in ITEMS]
        self.item = _only(next(filter(None, groups), []), "pictures or sounds", task, dataset)
        classes = [name for name in found if found[name] == CLASSES]
        if not classes:
            classes = [name for name in found if _is_word(types[name])]
        if not classes:
            _refuse_other_targets(types, task, self.item)
        self.label = _only(classes, "labels", task, dataset)
        self.classes: Sequence[str] | None = getattr(types[self.label], "names", None)
        plain = dataset.with_format(None)  # as it is stored, without transforms
        if found[self.item] == "Audio":  # its bytes, which are decoded here
            plain = plain.cast_column(self.item, type(types[self.item])(decode=False))
        self.dataset = plain

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        row = self.dataset[index]
        item = row[self.item]
        if isinstance(item, dict):  # a file of sound
            item = item["bytes"] or item["path"]
        return item, row[self.label]

    def column(self, name: str) -> list[Any]:
        """All values of one column; no picture is decoded for it."""
        if name not in self.dataset.column_names:
            raise RivalsError(
                f"The dataset has no column '{name}', but {_some(self.dataset.column_names)}; "
                "name one of them."
            )
        return list(self.dataset[name])

    @property
    def labels(self) -> list[Any]:
        return self.column(self.label)


def _only(names: list[str], what: str, task: str, dataset: Any) -> str:
    if len(names) == 1:
        return names[0]
    if names:
        raise RivalsError(
            f"The dataset of the task '{task}' has {len(names)} columns of {what}, "
            f"{_some(names)}; keep one of them, with dataset.select_columns([…])."
        )
    raise RivalsError(
        f"The dataset of the task '{task}' has no column of {what}, but "
        f"{_some(list(dataset.features))}; say which one it is with dataset.cast_column."
    )


def _is_word(kind: Any) -> bool:
    return type(kind).__name__ == "Value" and str(kind.dtype).startswith(WORDS)


def _refuse_other_targets(types: dict[str, Any], task: str, item: str) -> None:
    """What is learned by other libraries: regression, and several labels for a picture."""
    for name, kind in types.items():
        if name != item and type(kind).__name__ in LISTS:
            raise RivalsError(
                f"The column '{name}' of the task '{task}' holds several labels for each picture, "
                "but a picture has one class here; multi-label data are not learned."
            )
    for name, kind in types.items():
        if type(kind).__name__ == "Value" and "float" in str(kind.dtype):
            raise RivalsError(
                f"The column '{name}' of the task '{task}' holds {kind.dtype} numbers, but labels "
                "are classes, and regression is not learned; cut the numbers into classes, for "
                "example with numpy.digitize."
            )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
