"""Herding (iCaRL, Rebuffi et al. 2017, Algorithm 4): exemplars whose mean follows the class mean.

Features come from a function of the method, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from rivals.errors import RivalsError

Features = Callable[[Tensor], Tensor]  # (n, channels, height, width) uint8 → (n, d)
BATCH = 256  # images at a time


def herding(features: Tensor, count: int) -> Tensor:
    """Indices (≤ count,) into `features` (n, d), best first: a prefix is the choice of its length.

    The k-th is argmin over the unchosen x of ‖μ − (φ(x) + Σ φ(chosen)) / k‖; of equals the first.
    """
    # Float64: sums of many features decide between near neighbours. NumPy's argmin returns the
    # first of equals; PyTorch does not promise that.
    points = features.detach().double().numpy()
    mean, total = points.mean(0), np.zeros(points.shape[1])
    chosen: list[int] = []
    for k in range(1, min(count, len(points)) + 1):
        distance = ((k * mean - total - points) ** 2).sum(1)  # (n,), k² times the squared distance
        distance[chosen] = np.inf
        pick = int(distance.argmin())
        chosen.append(pick)
        total += points[pick]
    return torch.tensor(chosen, dtype=torch.int64)


@torch.no_grad()
def compute_features(features: Features, batches: Iterable[Tensor], count: int) -> Tensor:
    """The features of `count` images that come in `batches`: (count, d) float32, on the CPU."""
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
