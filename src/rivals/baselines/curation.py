"""Which examples of a task are still worth training on (SparCL's data removal).

An example that is right in one epoch and wrong in the next was forgotten once. The least forgotten
are the easiest and go first; one that was never right counts as forgotten most.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.seeds import Seed


class Curation:
    """The record of `count` examples, and who is left."""

    def __init__(self, count: int) -> None:
        self.left = torch.arange(count)  # (left,) into the task's training set
        self.restart()

    def restart(self) -> None:
        """Forget what happened to those who are left."""
        count = len(self.left)
        self.right = torch.zeros(count, dtype=torch.bool)  # when last seen
        self.learned = torch.zeros(count, dtype=torch.bool)  # ever right
        self.forgotten = torch.zeros(count, dtype=torch.int32)  # times

    def record(self, index: Tensor, right: Tensor) -> None:
        """The examples at `index` of those left were right, or not."""
        self.forgotten[index] += (self.right[index] & ~right).int()
        self.learned[index] |= right
        self.right[index] = right

    def drop(self, count: int, seed: Seed) -> None:
        """Let the `count` least forgotten go, chance deciding between equals; one always stays."""
        chance = torch.randperm(len(self.left), generator=seed.torch())
        often = torch.where(self.learned, self.forgotten, torch.iinfo(torch.int32).max)
        order = chance[often[chance].sort(stable=True).indices]
        self.left = self.left[order[min(count, len(self.left) - 1) :].sort().values]
        self.restart()

    def tensors(self) -> dict[str, Tensor]:
        names = ("left", "right", "learned", "forgotten")
        return {name: getattr(self, name) for name in names}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            setattr(self, name, tensor)
