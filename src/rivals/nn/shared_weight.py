"""The shared weight of a layer, edge by edge, and who uses each edge.

An edge joins a unit of this layer (row) to a unit of the layer before (column); it has `taps`
weights: the kernel of a convolution, the positions of a flattened map, or one. An edge that a task
uses is protected: later tasks read it and never change it. An edge that nobody uses is free, and
its value is untrained: a function of the seed.

A task uses one unit of every block, so a claim is a table (row blocks, column blocks), and two
claims meet in the cells whose row and column winners are the same in both.

What a task claims is kept with 16 bits: half the bytes, and what a rounding of 2⁻¹¹ changes is not
seen in accuracy (docs/research.md). It is computed with, and trained on, with 32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from rivals.nn.untrained import standard_normal

KEPT = torch.float16  # how claimed values are kept
LARGEST = torch.finfo(KEPT).max
AT_ONCE = 1 << 18  # numbers, when all rows are looked at: no table of all edges is ever made


@dataclass
class Claim:
    """The edges rows × columns that a task uses, and which of them it owns: those nobody used."""

    rows: Tensor  # (row blocks,) ids
    columns: Tensor  # (column blocks,) ids, or the whole input
    first: Tensor  # (row blocks, column blocks) bool


class SharedWeight(ABC):
    """Weights (rows, columns, taps) that tasks read, claim and give back."""

    def __init__(self, rows: int, columns: int, taps: int, std: float, seed: int) -> None:
        self.rows, self.columns, self.taps, self.std, self.seed = rows, columns, taps, std, seed
        self.claims: dict[str, Claim] = {}  # in the order in which tasks were learned
        self._tables: tuple[Tensor, Tensor] | None = None  # rows and columns of all claims

    def untrained(self, rows: Tensor, columns: Tensor) -> Tensor:
        """What the edges rows × columns are before any task: (rows, columns, taps)."""
        return standard_normal(self.seed, rows, columns, self.taps).mul_(self.std)

    @abstractmethod
    def read(self, rows: Tensor, columns: Tensor) -> Tensor:
        """A copy of the slice rows × columns."""

    @abstractmethod
    def put(self, task: str, values: Tensor) -> None:
        """Keep the values (row blocks, column blocks, taps) of the edges that `task` owns."""

    @abstractmethod
    def move(self, task: str, heir: str, cells: Tensor) -> None:
        """`heir` owns the cells from now on that `task` owned."""

    @abstractmethod
    def forget(self, task: str, cells: Tensor) -> None:
        """Nobody uses these cells of `task` any more: they become untrained."""

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows, self.columns, self.taps

    @property
    def numel(self) -> int:
        return self.rows * self.columns * self.taps

    def met(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Which tasks use which of `rows` and of `columns`: (tasks, n) bool each."""
        if self._tables is None:
            claims = self.claims.values()
            self._tables = (
                torch.stack([claim.rows for claim in claims]),
                torch.stack([claim.columns for claim in claims]),
            )
        mine, theirs = self._tables
        return mine[:, rows % mine.shape[1]] == rows, theirs[
            :, columns % theirs.shape[1]
        ] == columns

    def uses(self, rows: Tensor, columns: Tensor) -> Tensor:
        """How many tasks use each edge of the slice: (rows, columns)."""
        if not self.claims:
            return torch.zeros(len(rows), len(columns))
        mine, theirs = self.met(rows, columns)
        return mine.float().T @ theirs.float()

    def free(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which edges of the slice no task uses: (rows, columns) bool."""
        return self.uses(rows, columns) == 0

    def free_share(self, columns: Tensor | None = None) -> Tensor:
        """For every row, the free share of its edges to `columns` (default all): (rows,)."""
        columns = torch.arange(self.columns) if columns is None else columns
        if not self.claims:
            return torch.ones(self.rows)
        few = max(1, AT_ONCE // max(len(columns), len(self.claims)))
        parts = torch.arange(self.rows).split(few)  # type: ignore[no-untyped-call]
        return torch.cat([self.free(part, columns).float().mean(1) for part in parts])

    def room(self) -> float:
        """The share of all edges that no task uses."""
        owned = sum(int(claim.first.sum()) for claim in self.claims.values())  # each by one task
        return 1 - owned / (self.rows * self.columns)

    def claim(self, task: str, rows: Tensor, columns: Tensor, values: Tensor) -> None:
        """A task uses the slice from now on, and owns those of its edges that nobody used."""
        self.claims[task] = Claim(rows, columns, self.free(rows, columns))
        self._tables = None
        self.put(task, values)

    def owned(self, task: str) -> Tensor:
        """The values of the edges that `task` owns, as they are kept: (edges, taps)."""
        claim = self.claims[task]
        return kept(self.read(claim.rows, claim.columns)[claim.first])

    def release(self, task: str) -> None:
        """A task no longer uses its slice. What others use moves to the earliest of them."""
        gone = self.claims[task]
        orphans = gone.first.clone()
        for name, heir in self.claims.items():
            if name != task:
                same = (heir.rows == gone.rows).unsqueeze(1) & (heir.columns == gone.columns)
                if bool((cells := orphans & same).any()):
                    self.move(task, name, cells)
                    heir.first |= cells
                    orphans &= ~cells
        self.forget(task, orphans)
        del self.claims[task]
        self._tables = None

    def resize(self, rows: int, columns: int) -> None:
        """Grow to rows × columns; ids are only appended, so old edges keep their place and bits."""
        self.rows, self.columns = rows, columns


def kept(values: Tensor) -> Tensor:
    """Values as a claim keeps them; what is larger than 16 bits can say becomes the largest."""
    return values.clamp(-LARGEST, LARGEST).to(KEPT)


class HeldWeight(SharedWeight):
    """All values in memory: what unprotected training needs, where every edge may change."""

    def __init__(self, rows: int, columns: int, taps: int, std: float, seed: int) -> None:
        super().__init__(rows, columns, taps, std, seed)
        self.values = self.untrained(torch.arange(rows), torch.arange(columns))

    def read(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.values[rows.unsqueeze(1), columns]

    def write(self, rows: Tensor, columns: Tensor, values: Tensor) -> None:
        """Replace a slice, protected or not."""
        self.values[rows.unsqueeze(1), columns] = values

    def put(self, task: str, values: Tensor) -> None:
        claim = self.claims[task]
        old, new = self.read(claim.rows, claim.columns), kept(values).to(values.dtype)
        self.write(claim.rows, claim.columns, torch.where(claim.first.unsqueeze(2), new, old))

    def move(self, task: str, heir: str, cells: Tensor) -> None:
        pass

    def forget(self, task: str, cells: Tensor) -> None:
        rows, columns = self.claims[task].rows, self.claims[task].columns
        untrained, old = self.untrained(rows, columns), self.read(rows, columns)
        self.write(rows, columns, torch.where(cells.unsqueeze(2), untrained, old))

    def resize(self, rows: int, columns: int) -> None:
        if (rows, columns) != (self.rows, self.columns):
            values = self.untrained(torch.arange(rows), torch.arange(columns))
            values[: self.rows, : self.columns] = self.values
            self.values = values
        super().resize(rows, columns)
