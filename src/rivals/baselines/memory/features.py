"""Features of many images through a function that is given: in batches, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from rivals.errors import RivalsError

Features = Callable[[Tensor], Tensor]  # (n, channels, height, width) uint8 → (n, d)
BATCH = 256


@torch.no_grad()
def compute(features: Features, batches: Iterable[Tensor], count: int) -> Tensor:
    """(count, d) float32: the features of `count` images that come in `batches`."""
    if count == 0:
        raise RivalsError("There are no images to compute features of; give at least one.")
    held, done = torch.empty(0), 0
    for images in batches:
        found = features(images)
        if found.ndim != 2 or len(found) != len(images):
            raise RivalsError(
                f"The feature function gave {tuple(found.shape)} for {len(images)} images, but "
                f"({len(images)}, d) was expected; flatten each image's features."
            )
        if not bool(torch.isfinite(found).all()):
            raise RivalsError(
                "The feature function gave values that are not finite; "
                "check the network's weights, or lower lr."
            )
        if done == 0:
            held = torch.empty(count, found.shape[1])
        held[done : done + len(found)] = found
        done += len(found)
    return held
