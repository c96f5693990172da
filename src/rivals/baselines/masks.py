"""Masks over weights: the largest values of a tensor, masks of several weights, bits in bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor


class WeightMasks:
    """One mask for each of several weights; none while nothing is masked."""

    def __init__(self, masks: Sequence[Tensor] = ()) -> None:
        self.masks = list(masks)  # bool, in the shapes of the weights

    @classmethod
    def ones(cls, weights: Sequence[Tensor]) -> WeightMasks:
        """Masks that keep every weight."""
        return cls([torch.ones_like(weight, dtype=torch.bool) for weight in weights])

    def __len__(self) -> int:
        return len(self.masks)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.masks)

    def __getitem__(self, number: int) -> Tensor:
        return self.masks[number]

    @torch.no_grad()
    def apply(self, weights: Sequence[Tensor]) -> None:
        """Set masked weights to zero; nothing happens while there are no masks."""
        for weight, mask in zip(weights, self.masks, strict=bool(self.masks)):
            weight.mul_(mask)

    def densities(self) -> list[float]:
        """The share of weights that each mask keeps."""
        return [int(mask.sum()) / mask.numel() for mask in self.masks]

    @property
    def density(self) -> float:
        """The share of all weights that the masks keep."""
        if not self.masks:
            return 1.0
        return sum(int(m.sum()) for m in self.masks) / sum(m.numel() for m in self.masks)

    @property
    def nbytes(self) -> int:
        """Bytes of the masks at one bit per weight."""
        return sum((mask.numel() + 7) // 8 for mask in self.masks)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """One bit per weight, to be saved; `load` takes it back."""
        return {f"{prefix}{i}": pack_bits(mask) for i, mask in enumerate(self.masks)}

    @classmethod
    def load(
        cls, tensors: Mapping[str, Tensor], prefix: str, weights: Sequence[Tensor]
    ) -> WeightMasks:
        if f"{prefix}0" not in tensors:
            return cls()
        return cls([unpack_bits(tensors[f"{prefix}{i}"], w) for i, w in enumerate(weights)])


def top_share(values: Tensor, share: float) -> Tensor:
    """Where |values| are among the largest `share` of them: bool, at least one.

    The limit is the k-th smallest with k = 1 + round((1 − share)(n − 1)), as in WSN.
    """
    sizes = values.detach().abs()
    k = round((1 - share) * (sizes.numel() - 1))  # counted from 0
    if sizes.is_cpu:
        return sizes >= kth_smallest(sizes.flatten().numpy(), k)
    return sizes >= sizes.flatten().sort().values[k]


def top_count(values: Tensor, count: int) -> Tensor:
    """Where the `count` largest values are, exactly; of equals the first."""
    flat = values.detach().flatten()
    if count >= len(flat):
        return torch.ones_like(values, dtype=torch.bool)
    if count < 1:
        return torch.zeros_like(values, dtype=torch.bool)
    if not flat.is_cpu:
        first = flat.sort(descending=True, stable=True).indices[:count]
        chosen = torch.zeros_like(flat, dtype=torch.bool).index_fill_(0, first, True)
        return chosen.view(values.shape)
    limit = kth_smallest(flat.numpy(), len(flat) - count)
    chosen = flat > limit
    ties = torch.nonzero(flat == limit).flatten()
    chosen[ties[: count - int(chosen.sum())]] = True
    return chosen.view(values.shape)


def kth_smallest(values: np.ndarray, k: int) -> float:
    """The value that `k` others precede in order, exactly.

    NumPy's selection is thirty times as fast as torch's. On millions of values it is three times as
    fast again if a sample first tells between which two values the answer must be.
    """
    sample = np.sort(values[:: max(1, len(values) // 8192)])
    place, slack = round(k * len(sample) / len(values)), 2 * math.isqrt(len(sample))
    low, high = sample[max(0, place - slack)], sample[min(len(sample) - 1, place + slack)]
    below, between = int((values < low).sum()), values[(values >= low) & (values <= high)]
    if not below <= k < below + len(between):  # the sample misled: near the ends, or by bad luck
        below, between = 0, values
    return float(np.partition(between, k - below)[k - below])


def pack_bits(mask: Tensor) -> Tensor:
    """A mask of any shape → bytes, on the CPU."""
    return torch.from_numpy(np.packbits(mask.flatten().cpu().numpy()))


def unpack_bits(packed: Tensor, like: Tensor) -> Tensor:
    """Bytes → the mask (bool) in the shape of `like`, on its device."""
    flat = np.unpackbits(packed.cpu().numpy(), count=like.numel())
    return torch.from_numpy(flat).bool().view(like.shape).to(like.device)
