"""Pictures without labels, and the nearest of them to given exemplars (as in LLT).

A pool is a folder of pictures or a registered data set. Of a data set only the training images are
used, so that no test image is learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rivals.baselines.memory.herding import BATCH, Features, compute_features
from rivals.baselines.memory.pool_pictures import fitted, read_folder
from rivals.errors import RivalsError
from rivals.io.pictures import Shape
from rivals.streams.data.loading import load

DISTANCES = 4_000_000  # held at a time, 32 MB
BLOCK = 4096  # points multiplied at a time


@dataclass(frozen=True)
class Neighbours:
    """Images of a pool, query after query, nearest first."""

    index: Tensor  # (n,) int64, into the pool; none twice
    query: Tensor  # (n,) int64, whose neighbour each is
    distance: Tensor  # (n,) float64, L2
    asked: int  # queries × neighbours each; more than n if the pool ran out

    @property
    def short(self) -> int:
        """How many the pool could not give."""
        return self.asked - len(self.index)


class UnlabelledPool:
    """Images in the shape of a stream, read as they are needed."""

    def __init__(
        self, images: NDArray[np.uint8], shape: Shape, fingerprint: str, skipped: int = 0
    ) -> None:
        if images.ndim != 4 or images.dtype != np.uint8 or images.shape[1] not in (1, 3):
            raise RivalsError(
                f"The images of the pool are {images.shape} {images.dtype}, but (n, 1 or 3, "
                "height, width) uint8 was expected; give them as stored."
            )
        if len(images) == 0:
            raise RivalsError("The pool is empty; give at least one image.")
        _check(shape)
        self.source, self.shape = images, shape
        self.fingerprint = fingerprint  # of the pixels or of the source files
        self.skipped = skipped  # files of a folder that are not pictures
        self.subset = ""  # what results must report if a data set is not complete

    @classmethod
    def of_folder(cls, folder: Path, shape: Shape) -> UnlabelledPool:
        """The pictures under `folder`, in the order of their paths; the rest is skipped."""
        _check(shape)
        images, skipped, digest = read_folder(folder, shape)
        return cls(images, shape, f"folder:{digest}", skipped)

    @classmethod
    def of_dataset(cls, name: str, shape: Shape) -> UnlabelledPool:
        """The training images of the data set `name`."""
        data = load(name)
        pool = cls(data.train.images, shape, data.fingerprint)
        pool.subset = data.subset
        return pool

    def __len__(self) -> int:
        return len(self.source)

    def bytes(self, index: Tensor | None = None) -> dict[str, int]:
        """Of all images in the stream's shape, or of those at `index`."""
        count = len(self) if index is None else len(index)
        return {"images": count * torch.Size(self.shape).numel()}

    def take(self, index: Tensor) -> Tensor:
        """Images (n, channels, height, width) uint8 at `index`."""
        return fitted(torch.from_numpy(np.array(self.source[index.numpy()])), self.shape)

    def _batches(self) -> Iterator[Tensor]:
        for part in torch.split(torch.arange(len(self)), BATCH):
            yield self.take(part)

    def nearest(
        self,
        queries: Tensor,
        features: Features,
        each: int = 128,
        without: Tensor | None = None,
    ) -> Neighbours:
        """For each query (n, channels, height, width) uint8, in turn, its `each` nearest images
        that no query before it took; never those at `without`.

        Exact: every distance is computed. What is held at once are the pool's features, (pool, d)
        float32, and a few rows of distances.
        """
        if each < 1:
            raise RivalsError(f"{each} neighbours were asked for; ask for at least 1.")
        if queries.dtype != torch.uint8 or queries.shape[1:] != self.shape:
            raise RivalsError(
                f"The queries are {tuple(queries.shape)}, but the pool's images are {self.shape} "
                "uint8; give raw exemplars of the same stream."
            )
        free = torch.ones(len(self), dtype=torch.bool)  # (pool,)
        if without is not None:
            free[without] = False
        left = int(free.sum())
        if left == 0:
            raise RivalsError(f"All {len(self)} images of the pool are used; give a larger pool.")
        asking = compute_features(features, torch.split(queries, BATCH), len(queries))  # (n, d)
        points = compute_features(features, self._batches(), len(self))  # (pool, d)
        index, query, squared = [], [], []
        rows = max(1, DISTANCES // len(self))
        for first in range(0, len(asking), rows):
            if left == 0:
                break
            table = _squared(asking[first : first + rows], points)  # (rows, pool)
            for offset, row in enumerate(table):
                chosen = _lowest(row.masked_fill_(~free, torch.inf), min(each, left))
                free[chosen] = False
                left -= len(chosen)
                index.append(chosen)
                query.append(torch.full_like(chosen, first + offset))
                squared.append(row[chosen])
        return Neighbours(
            torch.cat(index), torch.cat(query), torch.cat(squared).sqrt(), each * len(queries)
        )


def _squared(queries: Tensor, points: Tensor) -> Tensor:
    """Squared L2 distances (queries, points) in float64, a block of points at a time."""
    ours = queries.double()
    table = torch.empty(len(ours), len(points), dtype=torch.float64)
    for block, part in zip(torch.split(table, BLOCK, 1), torch.split(points, BLOCK), strict=True):
        theirs = part.double()
        lengths = ours.square().sum(1, keepdim=True) + theirs.square().sum(1)
        block.copy_(lengths.addmm_(ours, theirs.T, alpha=-2).clamp_(min=0))
    return table


def _lowest(values: Tensor, count: int) -> Tensor:
    """Indices of the `count` lowest, in order; of equals the first, which topk does not promise."""
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    limit = values.topk(count, largest=False).values[-1]
    among = torch.nonzero(values <= limit).flatten()
    return among[values[among].sort(stable=True).indices[:count]]


def _check(shape: Shape) -> None:
    if len(shape) != 3 or shape[0] not in (1, 3) or min(shape) < 1:
        raise RivalsError(
            f"The pool's shape is {tuple(shape)}, but (1 or 3, height, width) was expected; "
            "give the stream's input_shape."
        )
