"""Exemplars as a few large tensors, for a checkpoint, and back; every bit and the order are kept.

Tensors are named by numbers, so no task's name or extra tensor's name can clash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from rivals.baselines.memory.exemplar import Exemplar


def pack(items: Sequence[Exemplar]) -> dict[str, Tensor]:
    """`images` (n, channels, height, width), `labels` (n, 2) with task number and label, and
    `extra.task.place` (of the task, …) for each extra tensor of a task."""
    if not items:
        return {}
    rows: dict[str, list[Tensor]] = {}
    for item in items:
        for place, values in enumerate(item.extra):
            rows.setdefault(f"extra.{item.task}.{place}", []).append(values)
    labels = torch.tensor([(item.task, item.label) for item in items], dtype=torch.int32)
    images = torch.stack([item.image for item in items])
    return {"images": images, "labels": labels, **{n: torch.stack(r) for n, r in rows.items()}}


def unpack(tensors: Mapping[str, Tensor]) -> Iterator[Exemplar]:
    """What was packed, copied out so that a dropped exemplar frees its bytes."""
    if not tensors:
        return
    rows = {name: iter(values) for name, values in tensors.items() if name.startswith("extra.")}
    for image, (task, label) in zip(tensors["images"], tensors["labels"].tolist(), strict=True):
        extra, place = [], 0
        while (own := rows.get(f"extra.{task}.{place}")) is not None:
            extra.append(next(own).clone())
            place += 1
        yield Exemplar(image.clone(), task, label, tuple(extra))
