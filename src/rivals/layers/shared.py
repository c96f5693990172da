"""The shared weight of a layer, edge by edge, and who uses each edge.

An edge joins a unit of this layer (row) to a unit of the layer before (column); it has `taps`
weights: the kernel of a convolution, the positions of a flattened map, or one. An edge that a task
uses is protected: later tasks read it and never change it. An edge that nobody uses is free, and its
value is untrained: a function of the seed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.layers.seeded import standard_normal


class SharedWeight:
    """Weights (rows, columns, taps) that tasks read, claim and give back."""

    def __init__(self, rows: int, columns: int, taps: int, std: float, seed: int) -> None:
        self.taps, self.std, self.seed = taps, std, seed
        self.values = self.untrained(torch.arange(rows), torch.arange(columns))
        self.uses = torch.zeros(rows, columns, dtype=torch.int32)

    @property
    def rows(self) -> int:
        return self.values.shape[0]

    @property
    def columns(self) -> int:
        return self.values.shape[1]

    def untrained(self, rows: Tensor, columns: Tensor) -> Tensor:
        """What the edges rows × columns are before any task: (rows, columns, taps)."""
        return standard_normal(self.seed, rows, columns, self.taps) * self.std

    def read(self, rows: Tensor, columns: Tensor) -> Tensor:
        """A copy of the slice rows × columns."""
        return self.values[rows.unsqueeze(1), columns]

    def write(self, rows: Tensor, columns: Tensor, values: Tensor) -> None:
        """Replace a slice; what is in use must be written as it was."""
        self.values[rows.unsqueeze(1), columns] = values

    def free(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which edges of the slice no task uses: (rows, columns) bool."""
        return self.uses[rows.unsqueeze(1), columns] == 0

    def free_share(self, columns: Tensor | None = None) -> Tensor:
        """For every row, the free share of its edges to `columns` (default all): (rows,)."""
        uses = self.uses if columns is None else self.uses[:, columns]
        return (uses == 0).float().mean(1)

    def claim(self, rows: Tensor, columns: Tensor) -> Tensor:
        """A task uses the slice from now on; which of its edges nobody used before: bool."""
        first = self.free(rows, columns)
        self.uses[rows.unsqueeze(1), columns] += 1
        return first

    def release(self, rows: Tensor, columns: Tensor) -> None:
        """A task no longer uses the slice; edges without users become untrained again."""
        self.uses[rows.unsqueeze(1), columns] -= 1
        free = self.free(rows, columns).unsqueeze(2)
        untrained = self.untrained(rows, columns)
        self.write(rows, columns, torch.where(free, untrained, self.read(rows, columns)))

    def resize(self, rows: int, columns: int) -> None:
        """Grow to rows × columns; ids are only appended, so old edges keep their place and bits."""
        if (rows, columns) == (self.rows, self.columns):
            return
        values = self.untrained(torch.arange(rows), torch.arange(columns))
        values[: self.rows, : self.columns] = self.values
        uses = torch.zeros(rows, columns, dtype=torch.int32)
        uses[: self.rows, : self.columns] = self.uses
        self.values, self.uses = values, uses
