"""Occlusion: a picture again and again, each time with another part of it covered.

    grid       cells that divide the picture evenly, as many as the budget of passes allows
    patches    squares of cells, a quarter of the side, at every place of the grid; those at its
               border lie half outside, or else its cells could not be told from those beside them
    covered    the picture with each patch in the mean colour of all the rest
    heat       for each cell what its patches cost on average when they are covered

The rest of the picture says what is in the place of a patch: an object that lies on an even ground
vanishes. A colour of the patch's border does not show the middle of a large object, and that of the
training pictures is foreign to this one. On pictures of CIFAR-10 grey, a blurred patch, the colour
of the border and that of the rest are equally faithful; patches with soft edges are less so.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

SIDES = (16, 12, 8, 4)  # cells of a side that are possible
PATCH = 4  # patches of a side that would cover it
BUDGET = 20e9  # multiplications for all patches of a picture: a second or two of one core
MOST = 0.5  # of the cells, from which on a part is most of the picture
MOST_OF_IT = "most of the picture"
PLACES = (
    ("upper left", "top", "upper right"),
    ("middle left", "middle", "middle right"),
    ("lower left", "bottom", "lower right"),
)


@dataclass(frozen=True)
class Grid:
    """Cells that divide pictures of `height` × `width` pixels, and patches of these cells."""

    height: int
    width: int
    side: int  # cells a side
    patch: int  # cells a side of a patch

    @classmethod
    def for_budget(cls, height: int, width: int, macs: int) -> Grid:
        """The finest grid whose patches cost the budget at most, a pass costing `macs`."""
        possible = [side for side in SIDES if side <= min(height, width)]
        grids = [cls(height, width, side, side // PATCH) for side in possible]
        return next((grid for grid in grids if grid.passes * macs <= BUDGET), grids[-1])

    @property
    def passes(self) -> int:
        return len(self.places) ** 2

    @property
    def places(self) -> range:
        """Where patches begin, in rows and in columns."""
        outside = self.patch // 2
        return range(-outside, self.side - self.patch + outside + 1)

    def pixels(self, cells: Tensor) -> Tensor:
        """Values of cells (…, side, side) for every pixel: (…, height, width)."""
        rows, columns = (torch.arange(n) * self.side // n for n in (self.height, self.width))
        return cells[..., rows, :][..., columns]

    def patches(self) -> Tensor:
        """The pixels of each patch: (passes, height, width) bool."""
        along = torch.zeros(len(self.places), self.side, dtype=torch.bool)
        for number, start in enumerate(self.places):
            along[number, max(0, start) : start + self.patch] = True
        cells = along[:, None, :, None] & along[None, :, None, :]
        return self.pixels(cells.view(-1, self.side, self.side))

    def heat(self, lost: Tensor) -> Tensor:
        """What was lost with each patch (passes,), for every cell: (side, side)."""
        count, outside = len(self.places), self.patch // 2
        maps = torch.stack([lost, torch.ones_like(lost)]).view(2, 1, count, count)
        window = torch.ones(1, 1, self.patch, self.patch)
        spread = F.conv_transpose2d(maps, window, padding=outside)
        return (spread[0] / spread[1])[0]


def covered(image: Tensor, places: Tensor) -> Tensor:
    """An image (channels, height, width) of bytes, with each of `places` (n, height, width) in the
    mean colour of what is left: (n, channels, height, width) bytes. Where nothing is left: grey."""
    values, rest = image.float(), (~places).float().flatten(1)  # (n, pixels)
    count = rest.sum(1, keepdim=True)
    colour = (rest @ values.flatten(1).T + 127.5 * (count == 0)) / count.clamp(min=1)
    found = torch.where(places.unsqueeze(1), colour[:, :, None, None], values)
    return found.round().to(torch.uint8)


def hottest_part(heat: Tensor, share: float) -> Tensor:
    """The cells (rows, columns) around the largest heat that have a share of it, connected.

    None of them where no heat is positive.
    """
    hot = (heat >= share * heat.max()) & (heat > 0)
    part = torch.zeros_like(hot)
    if bool(hot.any()):
        part.view(-1)[heat.argmax()] = True
    while True:
        near = F.max_pool2d(part[None].float(), 3, 1, 1)[0] > 0
        if bool((near & hot == part).all()):
            return part
        part = near & hot


def name_of_place(part: Tensor) -> str:
    """Where cells (rows, columns) lie in words, by their centre: `upper left`, `middle` …"""
    if float(part.float().mean()) > MOST:
        return MOST_OF_IT
    centre = (torch.nonzero(part) + 0.5).mean(0) / torch.tensor(part.shape)
    row, column = (3 * centre).long().tolist()
    return PLACES[row][column]
