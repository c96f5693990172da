"""Normalisation that belongs to a task: its own statistics, scale and shift (or only a bias)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.nn.competition import ActiveUnits, gate
from rivals.nn.gated_norm import GatedNorm

EPSILON = 1e-5


class NormState:
    """What one task knows of `width` channels.

    Not a module: a model has one for every layer and task, and they must stay small. Once the task
    is learned, its four rows are one tensor.
    """

    __slots__ = ("batches", "rows")
    NAMES = ("scale", "shift", "mean", "var")

    def __init__(self, width: int) -> None:
        self.rows: Sequence[Tensor] | Tensor = [
            nn.Parameter(torch.ones(width)),
            nn.Parameter(torch.zeros(width)),
            torch.zeros(width),
            torch.ones(width),
        ]
        self.batches = 0  # that the statistics are an average of

    @property
    def scale(self) -> Tensor:
        return self.rows[0]

    @property
    def shift(self) -> Tensor:
        return self.rows[1]

    @property
    def mean(self) -> Tensor:
        return self.rows[2]

    @property
    def var(self) -> Tensor:
        return self.rows[3]

    def parameters(self) -> list[Tensor]:
        return [self.scale, self.shift]

    def tensors(self) -> dict[str, Tensor]:
        """All of it, to be stored; `load` takes it back."""
        rows = {name: row.detach() for name, row in zip(self.NAMES, self.rows, strict=True)}
        return rows | {"batches": torch.tensor(float(self.batches))}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, row in zip(self.NAMES, self.rows, strict=True):
            row.copy_(tensors[name])
        self.batches = int(tensors["batches"])

    def pick(self, index: Tensor) -> NormState:
        """The state of the channels at `index`, which may repeat."""
        state = NormState(len(index))
        state.load({k: row[index] if row.dim() else row for k, row in self.tensors().items()})
        return state

    def freeze(self) -> None:
        """From now on it takes no gradients."""
        self.rows = torch.stack([row.detach() for row in self.rows])

    def forget_statistics(self) -> None:
        self.mean.zero_()
        self.var.fill_(1)
        self.batches = 0


class TaskNorm(nn.Module):
    """Batch normalisation with a state per task; `kind="none"` keeps only a bias per task.

    The statistics are an average over the first batches and an exponential one afterwards, so they
    may be forgotten and estimated anew at any time.
    """

    def __init__(self, kind: str = "batch") -> None:
        super().__init__()
        self.kind = kind
        self.tasks: dict[str, NormState] = {}

    def state(self, task: str) -> NormState:
        return self.tasks[task]

    def begin(self, task: str, width: int, ancestor: str | None = None) -> None:
        """A state for `width` channels; channel c starts as channel c mod n of an ancestor's n."""
        if ancestor is None:
            self.tasks[task] = NormState(width)
            return
        old = self.state(ancestor)
        self.tasks[task] = old.pick(torch.arange(width) % len(old.shift))

    def keep(self, task: str, ids: Tensor) -> None:
        """Reduce the state of `task` to the channels `ids`."""
        self.tasks[task] = self.state(task).pick(ids)

    def drop(self, task: str) -> None:
        self.tasks.pop(task, None)

    def forward(self, values: Tensor, task: str, live: ActiveUnits | None = None) -> Tensor:
        """Normalise `values` (batch, channels, …) of the `live` units (default all), and gate them.

        A state reduced to winners has one channel per block, and id mod blocks is the block.
        """
        if task not in self.tasks:
            return values if live is None else gate(values, live)
        state = self.state(task)
        width = len(state.shift)
        index = None if live is None or len(live.ids) == width else live.ids % width
        live = live or ActiveUnits(torch.arange(width))

        def part(tensor: Tensor) -> Tensor:
            return tensor if index is None else tensor.index_select(0, index)

        if self.kind == "none":
            values = values + part(state.shift).view(1, -1, *(1,) * (values.dim() - 2))
            return gate(values, live)
        learning = self.training and values.numel() > values.shape[1]
        scale, shift = part(state.scale), part(state.shift)
        if learning and live.forward is not None and live.forward.dim() == 1:
            # Units still compete: statistics would be those of whoever was live, and are not kept.
            out: Tensor = GatedNorm.apply(  # type: ignore[no-untyped-call]
                values, scale, shift, live.forward, live.backward, EPSILON
            )
            return out
        mean, var = part(state.mean), part(state.var)
        momentum = max(0.1, 1 / (1 + state.batches))
        out = F.batch_norm(values, mean, var, scale, shift, learning, momentum, EPSILON)
        if learning:
            state.batches += 1
            if index is not None:
                state.mean[index], state.var[index] = mean, var
        return gate(out, live)

    def folded(self, task: str) -> tuple[Tensor, Tensor]:
        """The norm at inference as (factor, offset) per channel: y = factor · x + offset."""
        if task not in self.tasks:  # as in `forward`: nothing to apply
            return torch.ones(1), torch.zeros(1)
        state = self.state(task)
        if self.kind == "none":
            return torch.ones_like(state.shift).detach(), state.shift.detach()
        factor = state.scale.detach() / torch.sqrt(state.var + EPSILON)
        return factor, state.shift.detach() - state.mean * factor
