"""A small network that is never trained: features of pictures for those who have no ancestor.

    picture, and its mirror ─► 25 oriented filters ─► light and dark part ─► mean of each quarter
                                                              │
                                            roots, 50 random sums of three maps ─► the same

Filters of the first layer are those of Gabor: waves of any direction and length under a bell, in
brightness or from one colour to another. Those of the second are random. Features of picture and
mirror are averaged, so that left and right count the same. All numbers follow from one seed: the
bank is stored nowhere, and is the same in every installation.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.nn.plain_layers import Resize
from rivals.seeds import Seed

SIDE = 32  # pixels a side of what the bank looks at
WAVES, WAVE_SIZE = 25, 7  # filters of the first layer, and their pixels a side
SUMS, SUM_SIZE, SUMMED = 50, 3, 3  # of the second layer; maps that each of them sums
QUARTERS = 4
WIDTH = QUARTERS * (2 * WAVES + SUMS)  # features of a picture
COLOURED = 0.5  # the share of filters that compare colours
ALIKE, NEAR = 0.85, 6.0  # correlation of colours, and pixels after which it falls to 1/e


class FilterBank(nn.Module):
    """Pictures (n, channels, height, width) with values from 0 to 1 → features (n, WIDTH), ≥ 0.

    A bank for 1 channel looks at the mean of the channels.

    >>> import torch
    >>> bank = FilterBank(3)
    >>> pictures = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> bank(pictures).shape
    torch.Size([2, 400])
    >>> torch.allclose(bank(pictures), bank(pictures.flip(3)), atol=1e-6)
    True
    """

    waves: Tensor  # (WAVES, channels, WAVE_SIZE, WAVE_SIZE)
    sums: Tensor  # (SUMS, 2 · WAVES, SUM_SIZE, SUM_SIZE)

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.resize = Resize(SIDE)
        self.register_buffer("waves", wave_filters(channels), persistent=False)
        self.register_buffer("sums", sum_filters(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[1] != self.waves.shape[1]:
            images = images.mean(1, keepdim=True)
        if images.shape[-2:] != (SIDE, SIDE):
            images = self.resize(images)
        return (self.one_way(images) + self.one_way(images.flip(3))) / 2

    def one_way(self, images: Tensor) -> Tensor:
        """The same of a picture without its mirror."""
        response = F.conv2d(images, self.waves)  # (n, WAVES, 26, 26)
        maps = torch.cat([F.relu(response), F.relu(-response)], 1)
        summed = F.relu(F.conv2d(F.avg_pool2d(maps, 2).sqrt(), self.sums))  # (n, SUMS, 11, 11)
        parts = F.avg_pool2d(maps, 13), F.avg_pool2d(summed, 6, 5)  # the quarters of each
        return torch.cat([part.flatten(1) for part in parts], 1)


def wave_filters(channels: int) -> Tensor:
    """Gabor filters whose responses to ordinary pictures have deviation 1: (WAVES, channels, …)."""
    generator = Seed(0).child("filter bank", "waves").torch()
    where = torch.arange(WAVE_SIZE) - (WAVE_SIZE - 1) / 2
    down, across = torch.meshgrid(where, where, indexing="ij")

    def drawn(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand(1, generator=generator))

    found = []
    for _ in range(WAVES):
        angle, phase = drawn(0, math.pi), drawn(0, 2 * math.pi)
        width, stretch = drawn(0.8, 2.5), drawn(0.6, 1.4)
        x, y = across - drawn(-1, 1), down - drawn(-1, 1)
        colour, opponent = drawn(0, 1), torch.randn(3, generator=generator)
        brightness, contrast = drawn(0.05, 0.35), drawn(0.0, 0.3)  # waves a pixel
        weights, waves = torch.ones(channels), brightness
        if channels == 3 and colour < COLOURED:
            weights, waves = opponent - opponent.mean(), contrast
        along = x * math.cos(angle) + y * math.sin(angle)
        beside = y * math.cos(angle) - x * math.sin(angle)
        bell = torch.exp(-(along.square() + stretch * beside.square()) / (2 * width**2))
        wave = weights[:, None, None] * (bell * torch.cos(2 * math.pi * waves * along + phase))
        wave = wave - wave.mean()
        found.append(wave / _usual_response(wave))
    return torch.stack(found)


def _usual_response(wave: Tensor) -> Tensor:
    """The deviation of what a filter answers to pictures whose pixels are like their neighbours."""
    channels, side, _ = wave.shape
    places = torch.cartesian_prod(torch.arange(side), torch.arange(side)).float()
    near = torch.exp(-(places[:, None] - places[None]).norm(dim=2) / NEAR)
    alike = torch.full((channels, channels), ALIKE).fill_diagonal_(1.0)
    covariance = torch.kron(alike, near) / 16  # pixels between 0 and 1 have deviation 1/4
    flat = wave.flatten()
    return (flat @ covariance @ flat).sqrt()


def sum_filters() -> Tensor:
    """Random filters on SUMMED maps of the first layer each, of mean 0 and length 1."""
    generator = Seed(0).child("filter bank", "sums").torch()
    found = torch.zeros(SUMS, 2 * WAVES, SUM_SIZE, SUM_SIZE)
    for each in found:
        maps = torch.randperm(2 * WAVES, generator=generator)[:SUMMED]
        weights = torch.randn(SUMMED, SUM_SIZE, SUM_SIZE, generator=generator)
        weights = weights - weights.mean()
        each[maps] = weights / weights.norm()
    return found
