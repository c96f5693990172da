"""Which units are active in a forward pass, under which gates, and with which weights.

    Wiring      the first unit of every block: layers learn their shapes when a network is built
    Draw        one step of competition: a Gumbel draw for each set of rivals, shared by the batch
    Siblings    the same, one unit of a block at a time, on values that all its rivals share
    Winners     inference: the winners of the task and nothing else
    Settled     training once the competition is over: the winners' weights, held as leaves
    Masked      every unit is computed and all but the winners are multiplied by zero (for checks)

While a task is learned (Draw, Settled), ids are local to its contenders and weights come from the
layers' training copies: active slices are leaf tensors, so a gradient is as small as they are.
For tasks that are done (Winners, Masked), ids are those of the layers and weights come from the
shared ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rivals.nn.blocks import RivalBlocks
from rivals.nn.competition import (
    ActiveUnits,
    gated,
    gumbel,
    relaxed,
    relaxed_sample,
    sparse,
)
from rivals.nn.training_copy import ActiveSlice, SiblingCopy, TrainingCopy

if TYPE_CHECKING:
    from rivals.nn.twta_layers import TWTALayer


class Selection:
    """The active units of one forward pass. Everything is decided once for each set of rivals."""

    def __init__(self, task: str) -> None:
        self.task = task
        self._active: dict[RivalBlocks, ActiveUnits] = {}

    def active(self, rivals: RivalBlocks) -> ActiveUnits:
        if rivals not in self._active:
            self._active[rivals] = self.select(rivals)
        return self._active[rivals]

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        raise NotImplementedError

    def weight(self, layer: TWTALayer, rows: Tensor, columns: Tensor) -> Tensor:
        return layer.weight.read(rows, columns)


class Wiring(Selection):
    """The first unit of every block, to learn shapes; gives weights of zeros and touches none."""

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        return ActiveUnits(torch.arange(rivals.blocks))

    def weight(self, layer: TWTALayer, rows: Tensor, columns: Tensor) -> Tensor:
        return torch.zeros(len(rows), len(columns), layer.weight.taps)


class _Training(Selection):
    """Keeps the slice of every layer, gathered once."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.slices: dict[TWTALayer, ActiveSlice] = {}

    def weight(self, layer: TWTALayer, rows: Tensor, columns: Tensor) -> Tensor:
        if layer not in self.slices:
            copy = layer.training_copy
            assert isinstance(copy, TrainingCopy)
            self.slices[layer] = ActiveSlice.gather(copy, rows, columns)
        return self.slices[layer].leaf


GATINGS: dict[str, Callable[..., ActiveUnits]] = {
    "relaxed": relaxed,
    "gated": gated,
    "sparse": sparse,
}


class Draw(_Training):
    """One step of competition, gated in one of three ways: `relaxed`, `gated` or `sparse`."""

    def __init__(
        self,
        task: str,
        gating: str,
        temperature: float,
        generator: torch.Generator,
        active: int = 1,
        examples: int | None = None,
    ) -> None:
        super().__init__(task)
        self.temperature, self.generator, self.examples = temperature, generator, examples
        self.gating = partial(sparse, count=active) if gating == "sparse" else GATINGS[gating]

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        log_posterior = rivals.posteriors[self.task]
        shape = tuple(log_posterior.shape)
        noise = gumbel(shape if self.examples is None else (self.examples, *shape), self.generator)
        noise = noise.to(log_posterior.device)  # drawn on the CPU: the same on every device
        return self.gating(relaxed_sample(log_posterior, noise, self.temperature))


class Siblings(_Training):
    """One step of competition among siblings: the unit that is drawn is the only one computed.

    It passes unscaled, and ξ̂ is the strength of its gradient. `slices` hold the shared values from
    step to step.
    """

    def __init__(
        self, task: str, temperature: float, generator: torch.Generator,
        slices: dict[TWTALayer, ActiveSlice],
    ) -> None:  # fmt: skip
        super().__init__(task)
        self.temperature, self.generator, self.slices = temperature, generator, slices

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        log_posterior = rivals.posteriors[self.task]
        noise = gumbel(tuple(log_posterior.shape), self.generator).to(log_posterior.device)
        return sparse(relaxed_sample(log_posterior, noise, self.temperature), count=1)

    def weight(self, layer: TWTALayer, rows: Tensor, columns: Tensor) -> Tensor:
        part = self.slices[layer]
        assert isinstance(part.copy, SiblingCopy)
        return part.copy.weight(part.leaf, rows, columns)


class Winners(Selection):
    """The winners of a task, and their weights read once."""

    def __init__(self, task: str) -> None:
        super().__init__(task)
        self.read: dict[TWTALayer, Tensor] = {}

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        return ActiveUnits(rivals.winner_ids(self.task))

    def weight(self, layer: TWTALayer, rows: Tensor, columns: Tensor) -> Tensor:
        if layer not in self.read:
            self.read[layer] = layer.weight.read(rows, columns)
        return self.read[layer]


class Settled(_Training):
    """The winners of the task at work, their weights held as leaves from step to step."""

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        device = rivals.winners[self.task].device
        return ActiveUnits(torch.arange(rivals.blocks, device=device))


class Masked(Selection):
    """All units, gated by the one-hot winners."""

    def select(self, rivals: RivalBlocks) -> ActiveUnits:
        winners = rivals.winner_ids(self.task)
        mask = torch.zeros(rivals.count, device=winners.device)
        mask[winners] = 1
        return ActiveUnits(torch.arange(rivals.count, device=winners.device), mask, mask)
