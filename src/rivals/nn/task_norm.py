"""Normalisation that belongs to a task: its own statistics, scale and shift.

`batch` is batch normalisation, `none` only a bias, `identity` not even that (Eq. 1 of the paper).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.nn.competition import ActiveUnits, gate
from rivals.nn.task_state import TaskTable

EPSILON = 1e-5


class NormState(nn.Module):
    """What one task knows of `width` channels."""

    scale: Tensor
    shift: Tensor
    mean: Tensor
    var: Tensor
    NAMES = ("scale", "shift", "mean", "var")

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.batches = 0  # that the statistics are an average of

    def tensors(self) -> dict[str, Tensor]:
        """All of it, to be stored; `load` takes it back."""
        rows = {name: getattr(self, name).detach() for name in self.NAMES}
        return rows | {"batches": torch.tensor(float(self.batches))}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        for name in self.NAMES:
            getattr(self, name).copy_(tensors[name])
        self.batches = int(tensors["batches"])

    def pick(self, index: Tensor) -> NormState:
        """The state of the channels at `index`, which may repeat."""
        state = NormState(len(index)).to(index.device)
        state.load({k: row[index] if row.dim() else row for k, row in self.tensors().items()})
        return state

    def freeze(self) -> None:
        """From now on it takes no gradients."""
        self.requires_grad_(False)

    def forget_statistics(self) -> None:
        self.mean.zero_()
        self.var.fill_(1)
        self.batches = 0


class TaskNorm(nn.Module):
    """What a layer does to its values before the gate, with a state per task: see above.

    The statistics are an average over the first batches and an exponential one afterwards, so they
    may be forgotten and estimated anew at any time.
    """

    tasks: MutableMapping[str, NormState]

    def __init__(self, kind: str = "batch") -> None:
        super().__init__()
        self.kind = kind
        self.attach(TaskTable(), 0)

    def attach(self, table: TaskTable, number: int) -> None:
        """Keep the states of tasks in `table`, under the number of this layer."""
        self.tasks = table.column(f"norm{number}")

    def state(self, task: str) -> NormState:
        return self.tasks[task]

    def begin(
        self, task: str, width: int, ancestor: str | None = None,
        device: torch.device | None = None,
    ) -> None:  # fmt: skip
        """A state for `width` channels; channel c starts as channel c mod n of an ancestor's n."""
        if ancestor is None:
            self.tasks[task] = NormState(width).to(device or "cpu")
            return
        old = self.state(ancestor)
        channels = torch.arange(width, device=old.shift.device)
        self.tasks[task] = old.pick(channels % len(old.shift))

    def keep(self, task: str, ids: Tensor) -> None:
        """Reduce the state of `task` to the channels `ids`."""
        self.tasks[task] = self.state(task).pick(ids)

    def forward(self, values: Tensor, task: str, active: ActiveUnits | None = None) -> Tensor:
        """Normalise `values` (batch, channels, …) of the `active` units (default all), and gate
        them.

        A state reduced to winners has one channel per block, and id mod blocks is the block.
        """
        if task not in self.tasks:
            return values if active is None else gate(values, active)
        state = self.state(task)
        width = len(state.shift)
        index = None if active is None or len(active.ids) == width else active.ids % width
        active = active or ActiveUnits(torch.arange(width, device=values.device))

        def part(tensor: Tensor) -> Tensor:
            return tensor if index is None else tensor.index_select(0, index)

        if self.kind == "identity":
            return gate(values, active)
        if self.kind == "none":
            values = values + part(state.shift).view(1, -1, *(1,) * (values.dim() - 2))
            return gate(values, active)
        learning = self.training and values.numel() > values.shape[1]
        scale, shift = part(state.scale), part(state.shift)
        if learning and active.forward is not None and active.forward.dim() == 1:
            # Units still compete: statistics would mix those of all drawn units, so none are kept.
            out: Tensor = GatedNorm.apply(  # type: ignore[no-untyped-call]
                values, scale, shift, active.forward, active.backward, EPSILON
            )
            return out
        mean, var = part(state.mean), part(state.var)
        momentum = max(0.1, 1 / (1 + state.batches))
        out = F.batch_norm(values, mean, var, scale, shift, learning, momentum, EPSILON)
        if learning:
            state.batches += 1
            if index is not None:
                state.mean[index], state.var[index] = mean, var
        return gate(out, active)

    def folded(self, task: str) -> tuple[Tensor, Tensor]:
        """The norm at inference as (factor, offset) per channel: y = factor · x + offset."""
        if task not in self.tasks:  # as in `forward`: nothing to apply
            return torch.ones(1), torch.zeros(1)
        state = self.state(task)
        if self.kind != "batch":
            return torch.ones_like(state.shift).detach(), state.shift.detach()
        factor = state.scale.detach() / torch.sqrt(state.var + EPSILON)
        return factor, state.shift.detach() - state.mean * factor


class GatedNorm(torch.autograd.Function):
    """Training-mode batch norm under a forward gate f and a backward gate b, (channels,) each.

    The gate is folded into scale and shift, so that it costs nothing: y = f · (scale · x̂ + shift)
    forward, and backward as if the gate were b. Equal to `gate(batch_norm(x), active)`.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, scale: Tensor, shift: Tensor, f: Tensor, b: Tensor, epsilon: float
    ) -> Tensor:
        out, batch_mean, batch_deviation = torch.native_batch_norm(
            values, scale * f, shift * f, None, None, True, 0.0, epsilon
        )
        ctx.save_for_backward(values, scale, shift, b, batch_mean, batch_deviation)
        ctx.epsilon = epsilon
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        values, scale, shift, b, batch_mean, batch_deviation = ctx.saved_tensors
        to_values, to_scale, to_shift = torch.ops.aten.native_batch_norm_backward(
            gradients[0], values, scale * b, None, None, batch_mean, batch_deviation, True,
            ctx.epsilon, [ctx.needs_input_grad[0], True, True],
        )  # fmt: skip
        to_gate = scale * to_scale + shift * to_shift
        return to_values, b * to_scale, b * to_shift, None, to_gate, None
