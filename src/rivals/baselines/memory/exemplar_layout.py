"""What one exemplar of a task is made of beside its label: the image, and tensors a method adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rivals.errors import RivalsError

LABEL_BYTES = 8  # a label and a task number, int32 each

Layout = dict[str, tuple[str, tuple[int, ...]]]  # extra tensors: name → (dtype, shape)


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
                "give one row an image."
            )
    return {name: (_dtype(values), tuple(values.shape[1:])) for name, values in extra.items()}


def exemplar_bytes(shape: Sequence[int], layout: Layout) -> int:
    """Of one exemplar: pixels, label, task number, extra tensors."""
    rest: int = sum(
        getattr(torch, dtype).itemsize * torch.Size(size).numel() for dtype, size in layout.values()
    )
    return torch.Size(shape).numel() + LABEL_BYTES + rest


def told(layout: Layout) -> str:
    """A layout in words."""
    return ", ".join(f"{name} {shape} {dtype}" for name, (dtype, shape) in layout.items()) or "none"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
