"""One seed, handed down. A child is named by what it is for, so no generator state is ever saved.

A run that stops after any step and goes on draws what it would have drawn: the noise of step 7 of
task "b" is a function of (seed, "b", 7) and of nothing that happened before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # devices draw without torch
    import torch


@dataclass(frozen=True)
class Seed:
    """A 63-bit seed and the way to derive others from it."""

    value: int

    def child(self, *names: str | int) -> Seed:
        """The seed for `names`, independent of every other child."""
        text = "\x1f".join(str(part) for part in (self.value, *names))
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return Seed(int.from_bytes(digest, "little") >> 1)

    def torch(self) -> torch.Generator:
        import torch

        return torch.Generator().manual_seed(self.value)

    def numpy(self) -> np.random.Generator:
        return np.random.default_rng(self.value)

    def permutations(self) -> Callable[[int], NDArray[Any]]:
        """A function that gives permutations of n numbers, one after the other, without torch.

        They are those of `torch.randperm` with the generator of this seed, which shuffles from the
        first to the last with 32 bits of a Mersenne Twister each.
        """
        generator = np.random.RandomState(self.value & 0xFFFFFFFF)

        def permutation(count: int) -> NDArray[Any]:
            words = generator.randint(0, 2**32, max(0, count - 1), np.uint32).tolist()
            order = list(range(count))
            for place, word in enumerate(words):
                other = place + word % (count - place)
                order[place], order[other] = order[other], order[place]
            return np.array(order, np.int64)

        return permutation
