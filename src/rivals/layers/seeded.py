"""Untrained weights as a function of the seed: no edge that nobody claimed is ever stored.

A counter-based generator: the weight of an edge depends on (seed, row, column, tap) alone, so any
slice can be made at any time, in any order, whatever the size of the layer is or becomes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Words = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


def _mix(words: Words) -> Words:
    """Scramble 64-bit words: a bijection in which every input bit reaches every output bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed


def _count(ids: Tensor, axis: int, salt: int) -> Words:
    words = ids.numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    return _mix(words).reshape([-1 if i == axis else 1 for i in range(3)])


def standard_normal(seed: int, rows: Tensor, columns: Tensor, taps: int) -> Tensor:
    """N(0, 1) weights of the edges rows × columns with `taps` each: (rows, columns, taps)."""
    words = _mix(_count(rows, 0, 1) ^ np.uint64(seed))
    words = _mix(words ^ _count(columns, 1, 2))
    words = _mix(words ^ _count(torch.arange(taps), 2, 3))
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    normal: Tensor = torch.special.ndtri(torch.from_numpy(uniform))
    return normal.float()
