"""How far confidence is from accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 15


def expected_error(confidence: Tensor, right: Tensor, bins: int = BINS) -> float:
    """Expected calibration error, from 0 to 1.

    Answers are put into bins of equal width by their confidence (n,), from 0 to 1; in each bin the
    mean confidence is compared with the share that is right.
    """
    if len(confidence) == 0:
        return 0.0
    confidence, right = confidence.double(), right.double()
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)  # (low, high]
    apart = torch.zeros(bins, dtype=confidence.dtype).index_add_(0, place, confidence - right)
    return float(apart.abs().sum() / len(confidence))
