"""Masks over weights: the largest share of something, and eight weights to a byte."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def top_share(values: Tensor, share: float) -> Tensor:
    """Where |values| are among the largest `share` of them: bool, at least one.

    The limit is the k-th smallest with k = 1 + round((1 − share)(n − 1)), as in WSN; NumPy finds it
    thirty times as fast as torch does.
    """
    sizes = values.detach().abs()
    k = round((1 - share) * (sizes.numel() - 1))  # counted from 0
    limit = float(np.partition(sizes.flatten().numpy(), k)[k])
    return sizes >= limit


def top_count(values: Tensor, count: int) -> Tensor:
    """Where the `count` largest values are, exactly; of equals the first."""
    flat = values.detach().flatten()
    if count >= len(flat):
        return torch.ones(values.shape, dtype=torch.bool)
    if count < 1:
        return torch.zeros(values.shape, dtype=torch.bool)
    place = len(flat) - count
    limit = float(np.partition(flat.numpy(), place)[place])
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
