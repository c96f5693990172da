"""The competition inside a block, as pure functions (Eq. 2, 3 and 5 of the paper).

A layer has `blocks` blocks of `units` rival units. A block's unit is numbered j = 0 … units − 1; in
the layer it has the id `j · blocks + block`. Ids are unit-major so that a layer can grow: one more
rival in every block appends `blocks` new ids and leaves the old ones alone.

    block        0    1    2    3
    unit 0   ┌  [0]   1    2   [3]      ids of a layer with 4 blocks of 3 units;
    unit 1   │   4    5   [6]   7       [ ] the winners of one task: 0, 9, 6, 3
    unit 2   └   8   [9]  10   11
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Noise g = −log(−log U), U ~ Uniform(0, 1), kept away from both ends (Eq. 5)."""
    uniform = torch.rand(shape, generator=generator).clamp_(1e-10, 1 - 1e-7)
    return -torch.log(-torch.log(uniform))


def relaxed_sample(log_posterior: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """ξ̂ = softmax((log π + g) / τ) over the units of a block, the last dimension (Eq. 5)."""
    return torch.softmax((log_posterior + noise) / temperature, dim=-1)


def winners(log_posterior: Tensor) -> Tensor:
    """The unit with the largest posterior in every block: (blocks, units) → (blocks,) (Eq. 3)."""
    return log_posterior.argmax(dim=-1)


def anneal(start: float, end: float, progress: float) -> float:
    """Linear from `start` to `end` as `progress` goes from 0 to 1."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def active_count(start: int, end: int, progress: float) -> int:
    """How many units of a block are active: `start` to `end` in geometric steps (8, 4, 2, 1)."""
    shrink: float = (end / start) ** min(max(progress, 0.0), 1.0)
    return max(1, round(start * shrink))


def unit_ids(units: Tensor) -> Tensor:
    """Unit numbers (blocks, k) → ids (k · blocks,), slot after slot and block after block."""
    blocks = units.shape[0]
    return (units.T * blocks + torch.arange(blocks, device=units.device)).flatten()


@dataclass(frozen=True)
class ActiveUnits:
    """The units of a layer that are computed, and the gates on what they say.

    `forward` scales the values, `backward` the gradient; both are None where nothing is gated.
    Gates have shape (active,), or (batch, active) with one draw per example.
    """

    ids: Tensor  # (active,)
    forward: Tensor | None = None
    backward: Tensor | None = None


def relaxed(sample: Tensor) -> ActiveUnits:
    """Eq. 5 as printed: every unit of `sample` ([batch,] blocks, units) is scaled by its ξ̂."""
    gates = sample.transpose(-1, -2).flatten(-2)
    return ActiveUnits(torch.arange(gates.shape[-1], device=gates.device), gates, gates)


def gated(sample: Tensor) -> ActiveUnits:
    """The paper's figures: only the winner passes forward, ξ̂ is the strength of its gradient."""
    hard = torch.nn.functional.one_hot(sample.argmax(-1), sample.shape[-1]).to(sample.dtype)
    ids = torch.arange(sample.numel(), device=sample.device)
    return ActiveUnits(ids, hard.T.flatten(), sample.T.flatten())


def sparse(sample: Tensor, count: int) -> ActiveUnits:
    """Only the `count` units with the largest ξ̂ of each block exist: (blocks, units) → active ones.

    Their gates are ξ̂ renormalised over the active ones, so count = units is `relaxed`. A single
    active unit passes unscaled, and ξ̂ scales its gradient: `gated` without the losers.
    """
    blocks, units = sample.shape
    if count >= units:
        return relaxed(sample)
    if count == 1:
        best, only = sample.max(dim=-1)  # quicker than topk
        ones = torch.ones(blocks, device=sample.device)
        return ActiveUnits(unit_ids(only.unsqueeze(1)), ones, best)
    chosen = sample.detach().topk(count, dim=-1).indices  # (blocks, count), best first
    strength = sample.gather(1, chosen)  # (blocks, count)
    gates = (strength / strength.sum(1, keepdim=True)).T.flatten()
    return ActiveUnits(unit_ids(chosen), gates, gates)


def gate(values: Tensor, active: ActiveUnits) -> Tensor:
    """Scale `values` (batch, active, …) by the forward gates, gradients by the backward ones."""
    if active.forward is None or active.backward is None:
        return values
    tail = (1,) * (values.dim() - 2)
    backward = active.backward.view(-1, active.backward.shape[-1], *tail)
    if active.forward is active.backward:
        return values * backward
    forward = active.forward.view(-1, active.forward.shape[-1], *tail)
    return values * backward + (values * (forward - backward)).detach()
