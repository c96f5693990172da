"""One seed, handed down. A child is named by what it is for, so no generator state is ever saved.

A run that stops after any step and goes on draws what it would have drawn: the noise of step 7 of
task "b" is a function of (seed, "b", 7) and of nothing that happened before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
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
        return torch.Generator().manual_seed(self.value)

    def numpy(self) -> np.random.Generator:
        return np.random.default_rng(self.value)
