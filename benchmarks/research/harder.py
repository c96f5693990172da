"""TWTA whose pictures are made harder while it learns, for the question `harder`.

erased   a square of so many pixels, somewhere, is grey
mixed    images are blended in pairs, the other one at most so strongly (mixup)
tinted   brightness, contrast and colour change by up to so much
dropped  so large a share of the features is left out
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.learn.twta import TWTA
from rivals.learn.twta_settings import TWTASettings
from rivals.streams.task import Batch


@dataclass(frozen=True)
class HarderSettings(TWTASettings):
    """How much harder; 0: not."""

    erased: int = 0
    mixed: float = 0.0
    tinted: float = 0.0
    dropped: float = 0.0


class Harder(TWTA):
    """TWTA with more noise in what it sees."""

    settings: HarderSettings
    settings_class = HarderSettings

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        s = self.settings
        generator = self.seed.child("harder", batch.task, self.position.step).torch()
        images, labels = batch.images, batch.labels
        if s.tinted:
            images = tint(images, s.tinted, generator)
        if s.erased:
            images = erase(images, s.erased, generator)
        other = torch.randperm(len(images), generator=generator)
        strength = float(torch.rand((), generator=generator)) * s.mixed
        images = images.lerp(images[other], strength)
        network = self.network.learning(True)
        flow = network.flow(images, batch.task, self.selection)
        if s.dropped:
            kept = torch.rand(flow.values.shape, generator=generator) >= s.dropped
            flow = flow.map(lambda values: values * kept / (1 - s.dropped))
        scores: Tensor = network.heads[batch.task](flow)
        own, others = F.cross_entropy(scores, labels), F.cross_entropy(scores, labels[other])
        return own.lerp(others, strength), scores


def tint(images: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Contrast, brightness and colour, each by its own chance; images (n, channels, h, w)."""
    count, channels = images.shape[:2]

    def chance(*shape: int) -> Tensor:
        return (torch.rand(*shape, 1, 1, generator=generator) * 2 - 1) * most

    return images * (1 + chance(count, 1)) + chance(count, 1) + chance(count, channels) / 2


def erase(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """A square around a random place becomes 0, the mean of the preprocessed pixels."""
    size = images.shape[-1]
    places = torch.randint(0, size, (2, len(images), 1), generator=generator)
    near = (places - torch.arange(size)).abs() * 2 < side  # (2, n, size)
    square = near[0].unsqueeze(2) & near[1].unsqueeze(1)  # (n, size, size)
    return images.masked_fill(square.unsqueeze(1), 0.0)
