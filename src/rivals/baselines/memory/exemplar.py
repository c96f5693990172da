"""What a memory is made of: one exemplar, the task it came from, and the batch that replays it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rivals.baselines.memory.exemplar_layout import Layout, told
from rivals.errors import RivalsError
from rivals.streams.task import Batch, Preprocessing


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

    @classmethod
    def copy(
        cls, raw: Tensor, task: int, label: int, extra: Sequence[Tensor], row: int
    ) -> Exemplar:
        """Row `row` as copies: a view would keep the whole batch in memory."""
        return cls(raw[row].clone(), task, label, tuple(v[row].detach().clone() for v in extra))


@dataclass
class Origin:
    """A task that exemplars come from; the layout is known once the first of them is offered."""

    name: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    layout: Layout | None = None

    def check(self, images: Tensor, labels: Tensor, layout: Layout) -> None:
        """Labels are the task's, one an image, and the extra tensors are as before."""
        if labels.shape != images.shape[:1]:
            raise RivalsError(
                f"There are {len(images)} images, but the labels are {tuple(labels.shape)}; "
                "give one label an image."
            )
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(self.classes):
            raise RivalsError(
                f"Labels run from {int(labels.min())} to {int(labels.max())}, but the task "
                f"'{self.name}' has {len(self.classes)} classes; count from 0 within the task."
            )
        if self.layout is not None and layout != self.layout:
            raise RivalsError(
                f"The extra tensors of the task '{self.name}' were {told(self.layout)} and are "
                f"now {told(layout)}; give the same ones with each of its examples."
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
        """All of it, as JSON can hold it."""
        layout = None
        if self.layout is not None:
            layout = [[name, dtype, list(shape)] for name, (dtype, shape) in self.layout.items()]
        prepared, classes = vars(self.preprocessing), list(self.classes)
        return {"name": self.name, "classes": classes, "preprocessing": prepared, "layout": layout}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any]) -> Origin:
        prepared, layout = facts["preprocessing"], facts["layout"]
        return cls(
            facts["name"],
            tuple(facts["classes"]),
            Preprocessing(prepared["scale"], tuple(prepared["mean"]), tuple(prepared["std"])),
            None if layout is None else {name: (d, tuple(shape)) for name, d, shape in layout},
        )
