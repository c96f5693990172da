"""What lies before the body and is never trained: a stem, and what a direct head reads.

    pictures ─► stem ─► body of rivals ─► head of a task
                  └─────────────────────► head of a direct task

A stem is a frozen module that turns pictures into features, once for all tasks. Most networks have
none, and their body reads the pictures. The head of a direct task reads the features of the stem,
or without a stem the picture made small (`PIXELS`) or its edges (`EDGES`). Such a task has no
ticket layers and claims nothing.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

STEM, PIXELS, EDGES = "stem", "pixels", "edges"  # what direct heads read


class Stem(nn.Module):
    """A frozen module from pictures (n, channels, height, width) to features (n, `features`).

    Features that were computed before, (n, `features`, 1, 1), pass through it as they are.

    Args:
        network: What computes the features.
        features: How many it gives.
        spread: The variance of a feature around the means of classes, about.
    """

    word = "stem"  # what a ticket's description calls it

    def __init__(self, network: nn.Module, features: int, spread: float = 1.0) -> None:
        super().__init__()
        self.network, self.features, self.spread = network, features, spread
        self.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Stem:
        """It stays as it was trained, whatever is learned behind it."""
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[1:] == (self.features, 1, 1):
            return images.flatten(1)
        return self.compute(images)

    def compute(self, images: Tensor) -> Tensor:
        """The features of pictures."""
        features: Tensor = self.network(images)
        return features

    def facts(self) -> dict[str, Any]:
        """What it takes to build it again, but for its tensors."""
        return {"features": self.features}
