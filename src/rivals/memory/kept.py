"""What a memory is made of: one exemplar, the task it came from, and the batch that replays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.tasks import Batch, Preprocessing, Task

LABEL_BYTES = 8  # a label and a task number, int32 each

Layout = dict[str, tuple[str, tuple[int, ...]]]  # of the extra tensors: name → (dtype, shape)


@dataclass(frozen=True)
class Replay(Batch):
    """Exemplars of one task; `index` counts them as `ExemplarMemory.all` does."""

    extra: Mapping[str, Tensor] = field(default_factory=dict)  # (n, …) each


@dataclass(frozen=True)
class Exemplar:
    """One stored example."""

    image: Tensor  # (channels, height, width) uint8
    task: int  # number of the task, in the order they began
    label: int  # within the task
    extra: tuple[Tensor, ...]  # in the order of the task's layout


@dataclass
class Origin:
    """A task that exemplars come from; the layout is known once the first of them is stored."""

    name: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    layout: Layout | None = None

    def extra_bytes(self) -> int:
        """Of one exemplar."""
        return sum(
            torch.empty(shape, dtype=getattr(torch, dtype), device="meta").nbytes
            for dtype, shape in (self.layout or {}).values()
        )

    def replay(self, items: Sequence[Exemplar], index: Tensor) -> Replay:
        """The chosen `items` as a batch, prepared as the task's own images are."""
        raw = torch.stack([item.image for item in items])  # (n, channels, height, width)
        labels = torch.tensor([item.label for item in items])  # (n,)
        extra = {
            name: torch.stack([item.extra[place] for item in items])
            for place, name in enumerate(self.layout or {})
        }
        return Replay(self.preprocessing(raw), labels, self.name, index, raw, extra)

    def facts(self) -> dict[str, Any]:
        layout = self.layout and [[n, d, list(shape)] for n, (d, shape) in self.layout.items()]
        prepare = {name: value for name, value in vars(self.preprocessing).items()}
        return {
            "name": self.name,
            "classes": list(self.classes),
            "preprocessing": prepare,
            "layout": layout,
        }

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Origin:
        prepare, layout = facts["preprocessing"], facts["layout"]
        return cls(
            facts["name"],
            tuple(facts["classes"]),
            Preprocessing(prepare["scale"], tuple(prepare["mean"]), tuple(prepare["std"])),
            None if layout is None else {n: (d, tuple(shape)) for n, d, shape in layout},
        )

    @classmethod
    def of_task(cls, task: Task) -> Origin:
        return cls(task.name, task.classes, task.preprocessing)


def layout_of(origin: Origin, raw: Tensor, labels: Tensor, extra: Mapping[str, Tensor]) -> Layout:
    """The layout of `extra` once all shapes and types fit together."""
    if raw.dtype != torch.uint8 or raw.ndim != 4:
        raise RivalsError(
            f"A memory keeps images as bytes, (n, channels, height, width) uint8, but got "
            f"{tuple(raw.shape)} {_word(raw)}; give the raw images, before preprocessing."
        )
    if labels.shape != raw.shape[:1]:
        raise RivalsError(
            f"There are {len(raw)} images, but the labels are {tuple(labels.shape)}; "
            "give one label an image."
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(origin.classes):
        raise RivalsError(
            f"Labels run from {int(labels.min())} to {int(labels.max())}, but the task "
            f"'{origin.name}' has {len(origin.classes)} classes; count from 0 within the task."
        )
    for name, values in extra.items():
        if values.shape[:1] != raw.shape[:1]:
            raise RivalsError(
                f"There are {len(raw)} images, but '{name}' is {tuple(values.shape)}; "
                "give one row an image."
            )
    layout = {name: (_word(v), tuple(v.shape[1:])) for name, v in extra.items()}
    if origin.layout is not None and layout != origin.layout:
        raise RivalsError(
            f"The extra tensors of the task '{origin.name}' were {_told(origin.layout)} and are now "
            f"{_told(layout)}; give the same ones with each of its examples."
        )
    return layout


def _told(layout: Layout) -> str:
    """A layout in words."""
    parts = [f"{name} {shape} {dtype}" for name, (dtype, shape) in layout.items()]
    return ", ".join(parts) or "none"


def _word(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
