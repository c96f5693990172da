"""Augmentation as operations on whole batches of stored pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

AUGMENTATIONS = ("none", "flip", "crop", "crop-flip")


def augment(images: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """`images` (n, channels, height, width) uint8, each moved and mirrored by its own chance."""
    if kind.startswith("crop"):
        images = random_crop(images, max(1, images.shape[-1] // 8), generator)
    if kind.endswith("flip"):
        images = random_flip(images, generator)
    return images


def random_crop(images: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    """Pad by `pad` black pixels on all sides and cut the old size out at a random place."""
    count, _, height, width = images.shape
    padded = F.pad(images, (pad, pad, pad, pad))
    down, right = torch.randint(0, 2 * pad + 1, (2, count, 1), generator=generator)
    rows = (down + torch.arange(height)).unsqueeze(2)  # (n, height, 1)
    columns = (right + torch.arange(width)).unsqueeze(1)  # (n, 1, width)
    picture = torch.arange(count).view(-1, 1, 1)
    return padded[picture, :, rows, columns].permute(0, 3, 1, 2).contiguous()


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability one half."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, images.flip(-1), images)
