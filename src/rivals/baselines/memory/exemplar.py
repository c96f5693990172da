"""One exemplar: its image, its label, the tensors that a method stores with it, and its task.

A memory gives exemplars back as batches (`Replay`) and saves them as a few large tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.seeds import Seed
from rivals.streams.augment import augment
from rivals.streams.task import Batch, Preprocessing

LABEL_BYTES = 8  # a label and a task number, int32 each

Layout = dict[str, tuple[str, tuple[int, ...]]]  # extra tensors: name → (dtype, shape)


@dataclass(frozen=True)
class Replay(Batch):
    """A batch of exemplars of one task; `index` counts as `ExemplarMemory.all` does."""

    extra: Mapping[str, Tensor] = field(default_factory=dict)  # (n, …) each

    def to(self, device: torch.device) -> Replay:
        """The same batch on another device, with its extra tensors."""
        names = ("images", "labels", "index", "raw")
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in names}
        moved["extra"] = {name: tensor.to(device) for name, tensor in self.extra.items()}
        return replace(self, **moved)


@dataclass(frozen=True)
class Exemplar:
    """One stored example, on the CPU."""

    image: Tensor  # (channels, height, width) uint8
    task: int  # number of the task, in the order in which tasks began
    label: int  # within the task
    extra: tuple[Tensor, ...]  # in the order of the task's layout

    @classmethod
    def copy(
        cls, raw: Tensor, task: int, label: int, extra: Sequence[Tensor], row: int
    ) -> Exemplar:
        """Copies of row `row`: views would keep the whole batch in memory."""
        return cls(raw[row].clone(), task, label, tuple(v[row].detach().clone() for v in extra))


@dataclass
class Origin:
    """The task that exemplars come from. Its layout is known once one of them is offered."""

    name: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    layout: Layout | None = None

    def check(self, images: Tensor, labels: Tensor, layout: Layout) -> None:
        """Refuse labels that do not fit the task, and extra tensors that changed."""
        if labels.shape != images.shape[:1]:
            raise RivalsError(
                f"There are {len(images)} images, but the labels are {tuple(labels.shape)}; "
                "give one label per image."
            )
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(self.classes):
            raise RivalsError(
                f"Labels run from {int(labels.min())} to {int(labels.max())}, but the task "
                f"'{self.name}' has {len(self.classes)} classes; count from 0 within the task."
            )
        if self.layout is not None and layout != self.layout:
            raise RivalsError(
                f"The extra tensors of the task '{self.name}' were {describe(self.layout)} and "
                f"are now {describe(layout)}; give the same ones with each of its examples."
            )

    def replay(
        self, items: Sequence[Exemplar], index: Tensor, device: torch.device,
        augmentation: str = "none", seed: Seed | None = None,
    ) -> Replay:  # fmt: skip
        """The chosen `items` as a batch, preprocessed like the task's own images."""
        raw = torch.stack([item.image for item in items])  # (n, channels, height, width)
        labels = torch.tensor([item.label for item in items])  # (n,)
        extra = {
            name: torch.stack([item.extra[place] for item in items])
            for place, name in enumerate(self.layout or {})
        }
        shown = raw
        if augmentation != "none" and seed is not None:
            shown = augment(raw, augmentation, seed.child("augment", self.name).torch())
        images = self.preprocessing(shown.to(device))
        return Replay(images, labels, self.name, index, raw, extra).to(device)

    def facts(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
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


# Layouts -----------------------------------------------------------------------------------------


def layout_of(raw: Tensor, extra: Mapping[str, Tensor]) -> Layout:
    """The layout of `extra`, (n, …) each, that goes with the images `raw`."""
    if raw.dtype != torch.uint8 or raw.ndim != 4:
        raise RivalsError(
            f"A memory keeps images as bytes, (n, channels, height, width) uint8, but got "
            f"{tuple(raw.shape)} {_dtype(raw)}; give the raw images, before preprocessing."
        )
    for name, values in extra.items():
        if values.shape[:1] != raw.shape[:1]:
            raise RivalsError(
                f"There are {len(raw)} images, but '{name}' is {tuple(values.shape)}; "
                "give one row per image."
            )
    return {name: (_dtype(values), tuple(values.shape[1:])) for name, values in extra.items()}


def exemplar_bytes(shape: Sequence[int], layout: Layout) -> int:
    """Bytes of one exemplar: pixels, label, task number, extra tensors."""
    rest: int = sum(
        getattr(torch, dtype).itemsize * torch.Size(size).numel() for dtype, size in layout.values()
    )
    return torch.Size(shape).numel() + LABEL_BYTES + rest


def describe(layout: Layout) -> str:
    """A layout in words."""
    return ", ".join(f"{name} {shape} {dtype}" for name, (dtype, shape) in layout.items()) or "none"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# Saving ------------------------------------------------------------------------------------------


def pack_exemplars(items: Sequence[Exemplar]) -> dict[str, Tensor]:
    """Exemplars as a few large tensors; every bit and the order are kept.

    `images` (n, channels, height, width), `labels` (n, 2) with task number and label, and
    `extra.task.place` (of the task, …) for each extra tensor of a task. Numbers, not names, so that
    no name of a task or tensor can clash with another.
    """
    if not items:
        return {}
    rows: dict[str, list[Tensor]] = {}
    for item in items:
        for place, values in enumerate(item.extra):
            rows.setdefault(f"extra.{item.task}.{place}", []).append(values)
    labels = torch.tensor([(item.task, item.label) for item in items], dtype=torch.int32)
    images = torch.stack([item.image for item in items])
    return {"images": images, "labels": labels, **{n: torch.stack(r) for n, r in rows.items()}}


def unpack_exemplars(tensors: Mapping[str, Tensor]) -> Iterator[Exemplar]:
    """What was packed, as copies, so that dropping an exemplar frees its bytes."""
    if not tensors:
        return
    rows = {name: iter(values) for name, values in tensors.items() if name.startswith("extra.")}
    for image, (task, label) in zip(tensors["images"], tensors["labels"].tolist(), strict=True):
        extra, place = [], 0
        while (own := rows.get(f"extra.{task}.{place}")) is not None:
            extra.append(next(own).clone())
            place += 1
        yield Exemplar(image.clone(), task, label, tuple(extra))
