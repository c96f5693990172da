"""Herding (iCaRL, Rebuffi et al. 2017, Algorithm 4): exemplars whose mean follows the class's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def herding(features: Tensor, count: int) -> Tensor:
    """Indices (≤ count,) into `features` (n, d), best first: a prefix is the choice of its length.

    The k-th is argmin over the unchosen x of ‖μ − (φ(x) + Σ φ(chosen)) / k‖; of equals the first.
    """
    # Float64: sums of many features decide between near neighbours. NumPy's argmin names the first
    # of equals, PyTorch's promises nothing.
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
