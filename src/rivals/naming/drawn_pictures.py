"""Pictures that are drawn, not photographed, and what is usual in the filter bank's features.

    python -m rivals.naming.drawn_pictures --out FOLDER

Discs and boxes of random place, size, direction and colour lie on one another ("dead leaves"), a
little blurred and noisy. They have edges, corners and even areas as photos have them, and come from
no data set. Mean and covariance of the roots of their features, with 16 bits, are what the bank is
known by before any task (naming/filter_rule.py). It takes a minute.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.io.files import write_bytes
from rivals.naming.class_sums import Array
from rivals.naming.filter_rule import CHANNELS, PLACE, usual_file
from rivals.nn.filter_bank import SIDE, FilterBank
from rivals.seeds import Seed

PICTURES, AT_ONCE = 8000, 500
SHAPES, COLOURS = 40, 4  # of a picture
SMALLEST, LARGEST = 2.0, 16.0  # radius in pixels
NOISE = 0.02


def drawn(count: int, generator: torch.Generator) -> Tensor:
    """Pictures (count, 3, SIDE, SIDE) with values from 0 to 1."""

    def chance(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator)

    pixels = torch.arange(SIDE).float()
    down, across = pixels.view(1, -1, 1), pixels.view(1, 1, -1)
    ground = 0.1 + 0.8 * chance(3)
    colours = 0.4 * ground[:, None] + 0.6 * chance(COLOURS, 3)
    found = ground[:, :, None, None].expand(count, 3, SIDE, SIDE)
    for _ in range(SHAPES):
        radius = SMALLEST + (LARGEST - SMALLEST) * chance(1, 1) ** 3
        angle, flat = math.pi * chance(1, 1), 0.3 + 0.7 * chance(1, 1)
        x, y = (
            across - (1.25 * chance(1, 1) - 0.125) * SIDE,
            down - (1.25 * chance(1, 1) - 0.125) * SIDE,
        )
        along = (x * angle.cos() + y * angle.sin()) / radius
        beside = (y * angle.cos() - x * angle.sin()) / (radius * flat)
        disc = along.square() + beside.square() < 1
        box = (along.abs() < 1) & (beside.abs() < 1)
        covered = torch.where(chance(1, 1) < 0.5, disc, box)[:, None]
        which = (COLOURS * chance()).long()
        colour = colours[torch.arange(count), which] * (0.7 + 0.6 * chance(1))
        shade = 1 + 0.05 * (chance(1, 1) - 0.5) * along * radius
        found = torch.where(covered, colour[:, :, None, None] * shade[:, None], found)
    blurred = F.avg_pool2d(F.pad(found, (1, 1, 1, 1), mode="replicate"), 3, 1)
    found = torch.where(chance(1, 1, 1) < 0.7, (found + blurred) / 2, found)
    return (found + NOISE * torch.randn(found.shape, generator=generator)).clamp(0, 1)


@torch.no_grad()
def usual(channels: int) -> dict[str, Array]:
    """What the file holds: mean and one half of the covariance of roots of features."""
    bank, rows = FilterBank(channels), []
    for number in range(0, PICTURES, AT_ONCE):
        pictures = drawn(AT_ONCE, Seed(0).child("drawn pictures", number).torch())
        if channels == 1:
            pictures = pictures.mean(1, keepdim=True)
        rows.append(bank(pictures).sqrt().double().numpy())
    whole = np.concatenate(rows)
    apart = whole - whole.mean(0)
    covariance = apart.T @ apart / len(whole)
    half = covariance[np.triu_indices(len(covariance))]
    return {"mean": whole.mean(0).astype(np.float16), "covariance": half.astype(np.float16)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rivals.naming.drawn_pictures")
    parser.add_argument("--out", type=Path, default=PLACE, help="folder of the files")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    for channels in CHANNELS:
        write_bytes(wanted.out / usual_file(channels).name, safetensors.numpy.save(usual(channels)))


if __name__ == "__main__":
    main()
