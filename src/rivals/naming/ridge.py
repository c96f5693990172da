"""Ridge regression for many penalties at once, with what it says of each row when that is left out.

Rows (n, d) are decomposed once, X = U S Vᵀ, over their smaller side; a penalty then costs two
products. Left out, row i is predicted as y − (y − ŷ) / (1 − h), h its own weight in its fitted
value ŷ: exact, without fitting n times.
"""

from __future__ import annotations

import torch
from torch import Tensor

NEGLIGIBLE = 1e-12  # of the largest: directions narrower than this are rounding


class Ridge:
    """Of targets (n, c) on rows (n, d), both float64; for a constant, add a column of ones."""

    def __init__(self, rows: Tensor, targets: Tensor) -> None:
        self.rows, self.targets = rows, targets
        few = len(rows) <= rows.shape[1]
        squares, vectors = torch.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
        wide = squares > NEGLIGIBLE * squares.max()
        self.squares = squares[wide]  # (k,)
        found = vectors[:, wide]
        self.directions = found if few else rows @ found / self.squares.sqrt()  # (n, k)
        self.along = self.directions.T @ targets  # (k, c)

    def left_out(self, penalty: float) -> Tensor:
        """What the others predict for each row: (n, c)."""
        share = self.squares / (self.squares + penalty)
        fitted = self.directions @ (share[:, None] * self.along)
        own = (self.directions.square() @ share)[:, None]
        left: Tensor = self.targets - (self.targets - fitted) / (1 - own)
        return left

    def weights(self, penalty: float) -> Tensor:
        """What to multiply rows with: (d, c)."""
        rows: Tensor = self.directions @ (self.along / (self.squares + penalty)[:, None])  # (n, c)
        return self.rows.T @ rows
