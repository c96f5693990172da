"""Untrained weights as a function of the seed: no edge that no task claimed is ever stored.

A counter-based generator: the weight of an edge depends on (seed, row, column, tap) alone, so any
slice can be made at any time, in any order, whatever the size of the layer is or becomes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

AT_ONCE = 1 << 15  # weights: as many as stay in the cache of a core
Words = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


def _mix(words: Words) -> Words:
    """Scramble 64-bit words: a bijection in which every input bit reaches every output bit."""
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def _count(ids: Tensor, axis: int, salt: int) -> Words:
    words = ids.numpy().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    return _mix(words).reshape([-1 if i == axis else 1 for i in range(3)])


def standard_normal(seed: int, rows: Tensor, columns: Tensor, taps: int) -> Tensor:
    """N(0, 1) weights of the edges rows × columns with `taps` each: (rows, columns, taps)."""
    normal = torch.empty(len(rows), len(columns), taps)
    columns_and_taps = _count(columns, 1, 2), _count(torch.arange(taps), 2, 3)
    few = max(1, AT_ONCE // max(1, len(columns) * taps))
    for start in range(0, len(rows), few):
        words = _mix(_count(rows[start : start + few], 0, 1) ^ np.uint64(seed))
        for ids in columns_and_taps:
            words = _mix(words ^ ids)
        words >>= np.uint64(11)
        uniform = torch.from_numpy((words.astype(np.float64) + 0.5) * 2.0**-53)
        normal[start : start + few] = torch.special.ndtri(uniform)
    return normal
