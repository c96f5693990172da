"""What is trained while a task is learned: the contenders' part of a layer's shared weight.

The shared weight is read once, when a task opens, and written once, when it closes. In between the
task works on this copy, whose size is that of its contenders and, once they have settled, that of
its ticket. Rows and columns are counted locally: contender s of block b is s · blocks + b.

*Siblings* need no copy of each contender: the free edges of all contenders of a block have the same
values, so a copy as large as the ticket holds them. Contenders differ in edges that others own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rivals.nn.shared_weight import OwnedEdges, SharedWeight


@dataclass
class TrainingCopy:
    """A copy of the edges rows × columns of a shared weight, and which of them may be trained."""

    rows: Tensor  # ids in the layer
    columns: Tensor  # ids in the layer before, or of the input
    values: Tensor  # (rows, columns, taps)
    free: Tensor | None  # (rows, columns) bool; None where every edge is free

    @classmethod
    def take(
        cls, weight: SharedWeight, rows: Tensor, columns: Tensor, ancestor: Tensor | None
    ) -> TrainingCopy:
        """Copy rows × columns; free edges start as the ancestor ticket's, block by block.

        `ancestor` (row blocks, column blocks, taps) is the slice of the ticket inherited from:
        every contender then starts as its block's unit in that ticket, but for edges in use.
        """
        values, free = weight.read(rows, columns), weight.free(rows, columns)
        if ancestor is not None:
            blocks = (rows % ancestor.shape[0]).unsqueeze(1), columns % ancestor.shape[1]
            values = torch.where(free.unsqueeze(2), ancestor[blocks], values)
        return cls(rows, columns, values, None if bool(free.all()) else free)

    def keep(self, rows: Tensor, columns: Tensor) -> TrainingCopy:
        """Only the local rows × columns."""
        at = rows.unsqueeze(1), columns
        free = None if self.free is None else self.free[at]
        if free is not None and bool(free.all()):
            free = None
        return TrainingCopy(self.rows[rows], self.columns[columns], self.values[at], free)

    def trainable_share(self) -> float:
        return 1.0 if self.free is None else float(self.free.float().mean())


@dataclass
class SiblingCopy:
    """One set of values for the free edges of all contenders, and the edges that others own."""

    rows: Tensor  # ids of the contenders in the layer
    columns: Tensor  # ids of those in the layer before, or of the input
    values: Tensor  # (row blocks, column blocks, taps), shared by the contenders
    owned: OwnedEdges

    def weight(self, shared: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """The slice of one contender of each block (local ids): `shared` where nobody owns it."""
        edges, values = self.owned.at(self.rows[rows], self.columns[columns])
        if not len(edges):
            return shared
        return shared.reshape(-1, shared.shape[2]).index_copy(0, edges, values).view(shared.shape)

    @torch.no_grad()
    def keep(self, rows: Tensor, columns: Tensor) -> TrainingCopy:
        """The ticket of the winners (local ids); the shared values become its own."""
        ids = self.rows[rows], self.columns[columns]
        edges, _ = self.owned.at(*ids)
        free = None
        if len(edges):
            free = torch.ones(len(rows), len(columns), dtype=torch.bool, device=rows.device)
            free.view(-1)[edges] = False
        return TrainingCopy(*ids, self.weight(self.values, rows, columns), free)

    def trainable_share(self) -> float:
        return 1.0  # of the shared values; what a winner may train is known when it is chosen


@dataclass
class ActiveSlice:
    """The active part of a training copy: a leaf to train, and the edges that must not move."""

    copy: TrainingCopy | SiblingCopy
    place: Tensor | None  # where its edges lie in the copy, as flat numbers; None: all of it
    leaf: Tensor  # (rows, columns, taps)
    free: Tensor | None  # (rows, columns, 1) bool; None where every edge is free
    frozen: Tensor | None  # the values before training; None where every edge is free
    held: tuple[Tensor, Tensor] | None = None  # rows (rows,) bool, and their values before a step

    @classmethod
    def gather(cls, copy: TrainingCopy, rows: Tensor, columns: Tensor) -> ActiveSlice:
        """The local rows × columns; all of them share the memory of `copy`, a part is copied."""
        height, width, _ = copy.values.shape
        if (len(rows), len(columns)) == (height, width):
            place, leaf, free = None, copy.values.detach(), copy.free
        else:
            # One flat index, and one dimension after the other, are several times as fast as pairs.
            place = (rows.unsqueeze(1) * width + columns).flatten()
            leaf = copy.values.index_select(0, rows).index_select(1, columns)
            free = None
            if copy.free is not None:
                free = copy.free.index_select(0, rows).index_select(1, columns)
        free = None if free is None else free.unsqueeze(2)
        frozen = None if free is None else leaf.clone()
        return cls(copy, place, leaf.requires_grad_(), free, frozen)

    @classmethod
    def shared(cls, copy: SiblingCopy) -> ActiveSlice:
        """The values that siblings share; they share the memory of `copy`."""
        return cls(copy, None, copy.values.detach().requires_grad_(), None, None)

    @torch.no_grad()
    def descend(self, lr: float, weight_decay: float) -> None:
        """A plain step of gradient descent, without memory: the next draw has other units."""
        assert self.leaf.grad is not None
        if weight_decay:
            self.leaf.grad.add_(self.leaf, alpha=weight_decay)
        self.leaf.sub_(self.leaf.grad, alpha=lr)

    @torch.no_grad()
    def hold(self, rows: Tensor) -> None:
        """Let these rows, (rows,) bool, have no gradient and not move in this step."""
        assert self.leaf.grad is not None
        self.leaf.grad[rows] = 0
        self.held = rows, self.leaf[rows].clone()

    @torch.no_grad()
    def guard(self) -> None:
        """Put protected and held weights back, whatever momentum or decay has done to them."""
        if self.held is not None:
            rows, before = self.held
            self.leaf[rows], self.held = before, None
        if self.free is not None and self.frozen is not None:
            self.leaf.copy_(torch.where(self.free, self.leaf, self.frozen))

    @torch.no_grad()
    def write_back(self) -> None:
        if self.place is not None:
            taps = self.leaf.shape[2]
            self.copy.values.view(-1, taps).index_copy_(0, self.place, self.leaf.view(-1, taps))
