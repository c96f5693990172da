"""Masks over weights: the largest share of something, and eight weights to a byte."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def top_share(values: Tensor, share: float) -> Tensor:
    """Where |values| are among the largest `share` of them: bool, at least one.

    The limit is the k-th smallest with k = 1 + round((1 − share)(n − 1)), as in WSN.
    """
    sizes = values.detach().abs()
    k = round((1 - share) * (sizes.numel() - 1))  # counted from 0
    return sizes >= kth_smallest(sizes.flatten().numpy(), k)


def kth_smallest(values: np.ndarray, k: int) -> float:
    """The value that `k` others precede, exactly.

    NumPy's selection is thirty times as fast as torch's. On millions of values it is three times as
    fast again after a look at a sample, which says between which two values the answer must be.
    """
    sample = np.sort(values[:: max(1, len(values) // 8192)])
    place, slack = round(k * len(sample) / len(values)), 2 * math.isqrt(len(sample))
    low, high = sample[max(0, place - slack)], sample[min(len(sample) - 1, place + slack)]
    below, between = int((values < low).sum()), values[(values >= low) & (values <= high)]
    if not below <= k < below + len(between):  # the sample is off: near the ends, or by bad luck
        below, between = 0, values
    return float(np.partition(between, k - below)[k - below])


def top_count(values: Tensor, count: int) -> Tensor:
    """Where the `count` largest values are, exactly; of equals the first."""
    flat = values.detach().flatten()
    if count >= len(flat):
        return torch.ones(values.shape, dtype=torch.bool)
    if count < 1:
        return torch.zeros(values.shape, dtype=torch.bool)
    place = len(flat) - count
    limit = kth_smallest(flat.numpy(), place)
    chosen = flat > limit
    ties = torch.nonzero(flat == limit).flatten()
    chosen[ties[: count - int(chosen.sum())]] = True
    return chosen.view(values.shape)


def pack(mask: Tensor) -> Tensor:
    """A mask of any shape → bytes."""
    return torch.from_numpy(np.packbits(mask.flatten().numpy()))


def unpack(packed: Tensor, like: Tensor) -> Tensor:
    """Bytes → the mask (bool) in the shape of `like`."""
    flat = np.unpackbits(packed.numpy(), count=like.numel())
    return torch.from_numpy(flat).bool().view(like.shape)
