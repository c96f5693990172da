"""How far "how sure" is from "how often right"."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 15


def expected_error(sure: Tensor, right: Tensor, bins: int = BINS) -> float:
    """Expected calibration error, from 0 to 1: answers are put into bins of equal width by how sure
    they are, (n,) from 0 to 1, and in each the mean is compared with the share that is right."""
    if len(sure) == 0:
        return 0.0
    sure, right = sure.double(), right.double()
    place = (sure * bins).ceil().long().sub(1).clamp(0, bins - 1)  # (low, high]
    apart = torch.zeros(bins, dtype=sure.dtype).index_add_(0, place, sure - right)
    return float(apart.abs().sum() / len(sure))
