"""The shared weight of a layer, edge by edge, and who uses each edge.

An edge joins a unit of this layer (row) to a unit of the layer before (column); it has `taps`
weights: the kernel of a convolution, the positions of a flattened map, or one. An edge that a task
uses is protected: later tasks read it and never change it. An edge that no task uses is free, and
its value is untrained: a function of the seed.

A task uses one unit of every block, so a claim is a table (row blocks, column blocks), and two
claims meet in the cells whose row and column winners are the same in both.

Claimed values are kept with 16 bits: half the bytes, and rounding by 2⁻¹¹ does not change accuracy
(docs/research.md). Training and inference compute with 32 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, MutableMapping

import torch
from torch import Tensor, nn

from rivals.nn.task_state import TaskTable
from rivals.nn.untrained import standard_normal

KEPT = torch.float16  # the type of claimed values
LARGEST = torch.finfo(KEPT).max
AT_ONCE = 1 << 18  # numbers, when all rows are looked at: no table of all edges is ever made


class Claim(nn.Module):
    """The edges rows × columns that a task uses, and which it owns: those that were free."""

    rows: Tensor  # (row blocks,) ids
    columns: Tensor  # (column blocks,) ids, or the whole input
    first: Tensor  # (row blocks, column blocks) bool: edges that the task was the first to use
    values: Tensor | None  # (owned edges, taps), in the order of `first`; None where all are stored

    def __init__(self, rows: Tensor, columns: Tensor, first: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.register_buffer("first", first)
        self.register_buffer("values", None)


class ClaimTable:
    """Claims, and the rows and columns of all of them side by side."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self.claims = list(claims)
        self._rows = torch.stack([c.rows for c in self.claims]) if self.claims else None
        self._columns = torch.stack([c.columns for c in self.claims]) if self.claims else None

    def add(self, claim: Claim) -> None:
        self.claims.append(claim)
        self._rows = _below(self._rows, claim.rows)
        self._columns = _below(self._columns, claim.columns)

    def met(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Which claims have which of `rows` and of `columns`: (claims, n) bool each."""
        mine, theirs = self._rows, self._columns
        assert mine is not None
        assert theirs is not None
        return mine[:, rows % mine.shape[1]] == rows, theirs[
            :, columns % theirs.shape[1]
        ] == columns

    def uses(self, rows: Tensor, columns: Tensor) -> Tensor:
        """How many claims have each edge of the slice: (rows, columns)."""
        if not self.claims:
            return torch.zeros(len(rows), len(columns), device=rows.device)
        mine, theirs = self.met(rows, columns)
        return mine.float().T @ theirs.float()


class OwnedEdges:
    """Every edge that a task owns, found by its row and column: what siblings differ in.

    Its size follows from what was learned, not from the number of rivals.
    """

    def __init__(self, weight: SharedWeight) -> None:
        claims = {name: each for name, each in weight.claims.items() if each.first.any()}
        self.values = torch.empty(0, weight.taps, dtype=KEPT)  # (edges, taps), claim after claim
        self.claims = len(claims)
        if not claims:
            return
        self.values = torch.cat([weight.owned(name) for name in claims])
        self.rows = torch.stack([each.rows for each in claims.values()])  # (claims, row blocks)
        self.columns = torch.stack([each.columns for each in claims.values()])
        first = next(iter(claims.values())).first
        kind = torch.int16 if first.shape[1] < torch.iinfo(torch.int16).max else torch.int32
        # Of each edge, how many of its row come before it in `values`; −1: owned by another claim.
        self.rank = torch.empty(len(claims), first.numel(), dtype=kind, device=first.device)
        counts = torch.empty(len(claims), len(first), dtype=torch.int64, device=first.device)
        for number, claim in enumerate(claims.values()):  # one at a time: a table may be large
            counted = claim.first.cumsum(1, dtype=kind)
            self.rank[number] = counted.mul_(claim.first).sub_(1).flatten()
            counts[number] = claim.first.sum(1)
        self.start = counts.flatten().cumsum(0) - counts.flatten()  # of each row of each claim

    def at(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Which edges of the slice are owned, as flat numbers (n,), and their values (n, taps).

        `rows` and `columns` have one id of each block, in the order of the blocks. A claim meets
        the slice in those of its rows and columns that both have, about one cell in J².
        """
        if not self.claims:
            return rows[:0], self.values
        met = self.columns == columns
        claim, row = torch.nonzero(self.rows == rows, as_tuple=True)
        column = torch.nonzero(met, as_tuple=True)[1]  # of the first claim, then of the second, …
        many = met.sum(1)
        each = many[claim]  # columns that meet a row
        ends = each.cumsum(0)
        in_slice = row * len(columns)
        of_row = claim * len(rows) + row
        facts = [
            (many.cumsum(0) - many)[claim] - (ends - each),  # where its columns are, less the place
            in_slice,
            claim * self.rank.shape[1] + in_slice,
            self.start[of_row],
        ]
        pair = torch.repeat_interleave(each)  # cell after cell, the row that it belongs to
        at, in_slice, in_rank, start = torch.stack(facts).index_select(1, pair)
        there = column.index_select(0, at + torch.arange(len(pair), device=rows.device))
        rank = self.rank.view(-1).index_select(0, in_rank + there)
        owned = torch.nonzero(rank >= 0).squeeze(1)
        place = (start + rank).index_select(0, owned)
        return (in_slice + there).index_select(0, owned), self.values.index_select(0, place).float()


def _below(table: Tensor | None, row: Tensor) -> Tensor:
    return row.unsqueeze(0) if table is None else torch.cat([table, row.unsqueeze(0)])


class SharedWeight(nn.Module, ABC):
    """Weights (rows, columns, taps) that tasks read, claim and give back."""

    claims: MutableMapping[str, Claim]  # in the order in which tasks were learned

    def __init__(self, rows: int, columns: int, taps: int, std: float, seed: int) -> None:
        super().__init__()
        self.rows, self.columns, self.taps, self.std, self.seed = rows, columns, taps, std, seed
        self.attach(TaskTable(), 0)

    def attach(self, table: TaskTable, number: int) -> None:
        """Keep claims in `table`, under the number of the layer."""
        self.claims = table.column(f"claim{number}")
        self._owners: ClaimTable | None = None

    def owners(self) -> ClaimTable:
        """The claims that own edges, looked up once between two changes.

        Whatever is used has one owner, so these tell what is free. Tasks that use nothing but an
        ancestor own nothing, and there may be thousands of them.
        """
        if self._owners is None:
            self._owners = ClaimTable(each for each in self.claims.values() if each.first.any())
        return self._owners

    def untrained(self, rows: Tensor, columns: Tensor) -> Tensor:
        """What the edges rows × columns are before any task: (rows, columns, taps)."""
        normal = standard_normal(self.seed, rows.cpu(), columns.cpu(), self.taps).mul_(self.std)
        return normal.to(rows.device)

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

    def uses(self, rows: Tensor, columns: Tensor) -> Tensor:
        """How many tasks use each edge of the slice: (rows, columns)."""
        return ClaimTable(self.claims.values()).uses(rows, columns)

    def free(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Which edges of the slice no task uses: (rows, columns) bool."""
        return self.owners().uses(rows, columns) == 0

    def free_share(self, columns: Tensor | None = None) -> Tensor:
        """For every row, the free share of its edges to `columns` (default all): (rows,)."""
        claims = self.owners().claims
        if not claims:
            return torch.ones(self.rows)
        device = claims[0].rows.device
        columns = torch.arange(self.columns, device=device) if columns is None else columns
        few = max(1, AT_ONCE // max(len(columns), len(claims)))
        rows = torch.arange(self.rows, device=device)
        parts = rows.split(few)  # type: ignore[no-untyped-call]
        return torch.cat([self.free(part, columns).float().mean(1) for part in parts])

    def room(self) -> float:
        """The share of all edges that no task uses."""
        owned = sum(int(claim.first.sum()) for claim in self.owners().claims)  # each by one task
        return 1 - owned / (self.rows * self.columns)

    def claim(self, task: str, rows: Tensor, columns: Tensor, values: Tensor) -> None:
        """A task uses the slice from now on, and owns those of its edges that were free."""
        claim, again = Claim(rows, columns, self.free(rows, columns)), task in self.claims
        self.claims[task] = claim
        if again:
            self._owners = None
        elif self._owners is not None and bool(claim.first.any()):
            self._owners.add(claim)
        self.put(task, values)

    def owned(self, task: str) -> Tensor:
        """The values of the edges that `task` owns, as they are kept: (edges, taps)."""
        claim = self.claims[task]
        return rounded(self.read(claim.rows, claim.columns)[claim.first])

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
        self._owners = None

    def resize(self, rows: int, columns: int) -> None:
        """Grow to rows × columns; ids are only appended, so old edges keep their place and bits."""
        self.rows, self.columns = rows, columns


def rounded(values: Tensor) -> Tensor:
    """Values as a claim keeps them; what 16 bits cannot express becomes the largest number."""
    return values.clamp(-LARGEST, LARGEST).to(KEPT)


class StoredWeight(SharedWeight):
    """All values in memory: what unprotected training needs, where every edge may change."""

    values: Tensor

    def __init__(self, rows: int, columns: int, taps: int, std: float, seed: int) -> None:
        super().__init__(rows, columns, taps, std, seed)
        self.register_buffer("values", self.untrained(torch.arange(rows), torch.arange(columns)))

    def read(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.values[rows.unsqueeze(1), columns]

    def write(self, rows: Tensor, columns: Tensor, values: Tensor) -> None:
        """Replace a slice, protected or not."""
        self.values[rows.unsqueeze(1), columns] = values

    def put(self, task: str, values: Tensor) -> None:
        claim = self.claims[task]
        old, new = self.read(claim.rows, claim.columns), rounded(values).to(values.dtype)
        self.write(claim.rows, claim.columns, torch.where(claim.first.unsqueeze(2), new, old))

    def move(self, task: str, heir: str, cells: Tensor) -> None:
        pass

    def forget(self, task: str, cells: Tensor) -> None:
        rows, columns = self.claims[task].rows, self.claims[task].columns
        untrained, old = self.untrained(rows, columns), self.read(rows, columns)
        self.write(rows, columns, torch.where(cells.unsqueeze(2), untrained, old))

    def resize(self, rows: int, columns: int) -> None:
        if (rows, columns) != (self.rows, self.columns):
            device = self.values.device
            ids = torch.arange(rows, device=device), torch.arange(columns, device=device)
            values = self.untrained(*ids)
            values[: self.rows, : self.columns] = self.values
            self.values = values
        super().resize(rows, columns)


class GeneratedWeight(SharedWeight):
    """Claimed edges in memory; all others are computed from the seed whenever they are read.

    So memory follows what was learned and not the width of the network.
    """

    def put(self, task: str, values: Tensor) -> None:
        claim = self.claims[task]
        claim.values = rounded(values[claim.first])

    def owned(self, task: str) -> Tensor:
        values = self.claims[task].values
        assert values is not None
        return values

    def read(self, rows: Tensor, columns: Tensor) -> Tensor:
        device = rows.device
        values = torch.empty(len(rows), len(columns), self.taps, device=device)
        missing = torch.ones(len(rows), len(columns), dtype=torch.bool, device=device)
        owners = self.owners()
        if owners.claims:
            mine, theirs = owners.met(rows, columns)
            for number in torch.nonzero(mine.any(1) & theirs.any(1)).flatten().tolist():
                at = torch.nonzero(mine[number]).flatten(), torch.nonzero(theirs[number]).flatten()
                _fill(owners.claims[number], rows, columns, at, values, missing)
                if not bool(missing.any()):  # an edge has one owner, so no other one can have more
                    break
        bare = missing.any(1)
        if bool(bare.any()):
            untrained = self.untrained(rows[bare], columns)
            gaps = missing[bare].unsqueeze(2)
            values[bare] = torch.where(gaps, untrained, values[bare])
        return values

    def move(self, task: str, heir: str, cells: Tensor) -> None:
        claim = self.claims[heir]
        whole = self._whole(heir)
        whole[cells] = self._whole(task)[cells]
        claim.values = whole[claim.first | cells]

    def _whole(self, task: str) -> Tensor:
        """What `task` owns, each edge in its place: (row blocks, column blocks, taps)."""
        first, values = self.claims[task].first, self.owned(task)
        whole = torch.empty(*first.shape, self.taps, dtype=KEPT, device=values.device)
        whole[first] = values
        return whole

    def forget(self, task: str, cells: Tensor) -> None:
        pass  # the values go with the claim


def _fill(
    claim: Claim, rows: Tensor, columns: Tensor, at: tuple[Tensor, Tensor], values: Tensor,
    missing: Tensor,
) -> None:  # fmt: skip
    """Fill in the cells that a claim owns, at those rows and columns that it has."""
    assert claim.values is not None
    at_rows, at_columns = at
    blocks = (
        (rows[at_rows] % len(claim.rows)).unsqueeze(1),
        columns[at_columns] % len(claim.columns),
    )
    cells = claim.first[blocks]  # (rows found, columns found)
    place = (claim.first.flatten().cumsum(0) - 1).view_as(claim.first)[blocks]
    row, column = torch.nonzero(cells, as_tuple=True)
    values[at_rows[row], at_columns[column]] = claim.values[place[cells]].to(values.dtype)
    missing[at_rows[row], at_columns[column]] = False
