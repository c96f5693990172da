"""A shared weight that is never held: what nobody claimed is generated whenever it is read.

Only the edges that tasks own are kept, so memory follows what was learned and not the width of the
network. Reading a slice lays the claims over each other, and generates what none of them covers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.nn.shared_weight import KEPT, SharedWeight, kept


class GeneratedWeight(SharedWeight):
    """Claimed edges in memory, all others a function of the seed."""

    def __init__(self, rows: int, columns: int, taps: int, std: float, seed: int) -> None:
        super().__init__(rows, columns, taps, std, seed)
        self.kept: dict[str, Tensor] = {}  # by task (edges, taps), in the order of `first`

    def put(self, task: str, values: Tensor) -> None:
        self.kept[task] = kept(values[self.claims[task].first])

    def owned(self, task: str) -> Tensor:
        return self.kept[task]

    def read(self, rows: Tensor, columns: Tensor) -> Tensor:
        values = torch.empty(len(rows), len(columns), self.taps)
        missing = torch.ones(len(rows), len(columns), dtype=torch.bool)
        if self.claims:
            mine, theirs = self.met(rows, columns)
            tasks = list(self.claims)
            for number in torch.nonzero(mine.any(1) & theirs.any(1)).flatten().tolist():
                at = torch.nonzero(mine[number]).flatten(), torch.nonzero(theirs[number]).flatten()
                self._lay(tasks[number], rows, columns, at, values, missing)
        bare = missing.any(1)
        if bool(bare.any()):
            untrained = self.untrained(rows[bare], columns)
            gaps = missing[bare].unsqueeze(2)
            values[bare] = torch.where(gaps, untrained, values[bare])
        return values

    def _lay(
        self, task: str, rows: Tensor, columns: Tensor, at: tuple[Tensor, Tensor],
        values: Tensor, missing: Tensor,
    ) -> None:  # fmt: skip
        """Fill in the cells that `task` owns, at those rows and columns that it has."""
        claim, (at_rows, at_columns) = self.claims[task], at
        blocks = (
            (rows[at_rows] % len(claim.rows)).unsqueeze(1),
            columns[at_columns] % len(claim.columns),
        )
        cells = claim.first[blocks]  # (rows found, columns found)
        place = (claim.first.flatten().cumsum(0) - 1).view_as(claim.first)[blocks]
        row, column = torch.nonzero(cells, as_tuple=True)
        values[at_rows[row], at_columns[column]] = self.kept[task][place[cells]].to(values.dtype)
        missing[at_rows[row], at_columns[column]] = False

    def move(self, task: str, heir: str, cells: Tensor) -> None:
        claim, whole = self.claims[heir], torch.empty(*cells.shape, self.taps, dtype=KEPT)
        whole[claim.first] = self.kept[heir]
        whole[cells] = self._whole(task)[cells]
        self.kept[heir] = whole[claim.first | cells]

    def _whole(self, task: str) -> Tensor:
        """What `task` owns, each edge in its place: (row blocks, column blocks, taps)."""
        first = self.claims[task].first
        whole = torch.empty(*first.shape, self.taps, dtype=KEPT)
        whole[first] = self.kept[task]
        return whole

    def forget(self, task: str, cells: Tensor) -> None:
        del self.kept[task]
