"""La-MAML, look-ahead MAML (Gupta, Yadav and Paull 2020): every weight learns its own step size.

A few steps on slices of the batch are tried. The loss of where they lead, on the batch and on
exemplars, tells first the step sizes α and then, with the new ones, the weights θ where to go:

    θˢ = θˢ⁻¹ − α ⊙ ∇ loss(θˢ⁻¹; slice s)            L = mean over s of loss(θˢ; batch ∪ exemplars)
    α ← α − η ∂L/∂α                                  θ ← θ − max(α, 0) ⊙ ∂L/∂θ

Where this differs from the official code:
- A task has its own norm and head (`own`); official networks have no norm, and on permuted MNIST
  one head for all tasks, which `norm=none own=nothing` give.
- A batch is offered to the memory after its step, not slice by slice within it, so no batch is
  replayed to itself; with `replay_from=past`, neither is any other of the present task.
- Entries of the gradients that are tried are clamped on permuted MNIST too; there the official code
  computes that and drops the result.
- lr, momentum and weight_decay only serve the variants `sync` (learned α, but plain steps of θ) and
  `cmaml` (α stays as it is).
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from rivals.baselines.meta import Meta, MetaSettings, clipped
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch


class LaMAMLSettings(MetaSettings):
    """Step sizes and what becomes of them."""

    step_size: float = Field(0.1, description="α at the start")
    step_size_lr: float = Field(0.25, description="η")
    positive: bool = Field(False, description="try steps with max(α, 0) too, as official on MNIST")
    variant: Literal["lamaml", "sync", "cmaml"] = Field(
        "lamaml", description="lamaml | sync | cmaml"
    )

    def check(self) -> None:
        super().check()
        self.not_negative("step_size", "step_size_lr")


@methods.register("lamaml")
class LaMAML(Meta):
    """Step sizes that learn not to interfere with what is remembered."""

    settings: LaMAMLSettings
    settings_class = LaMAMLSettings

    def __init__(self, plan: NetworkPlan, settings: LaMAMLSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.step_sizes: dict[str, Tensor] = {}  # α, by the name of the weight

    def prepare(self) -> None:
        super().prepare()
        for weight in self.trained():
            start = torch.full_like(weight, self.settings.step_size, requires_grad=False)
            self.step_sizes.setdefault(self.names[id(weight)], start)

    def glance(
        self, batch: Batch, replayed: list[Batch], slices: list[Batch]
    ) -> tuple[float, Tensor]:
        s = self.settings
        present = self.weights(batch.task)
        every = self.weights(batch.task, *(each.task for each in replayed))
        sizes = [self.step_sizes[self.names[id(w)]].clone().requires_grad_() for w in present]
        loss, scores = self.look_ahead(present, sizes, batch, replayed, slices)
        found = torch.autograd.grad(loss, [*every, *sizes], allow_unused=True)
        of_weights = clipped(found[: len(every)], s.clip)
        of_sizes = clipped(found[len(every) :], s.clip)
        if s.variant != "cmaml":
            for weight, size, gradient in zip(present, sizes, of_sizes, strict=True):
                if gradient is not None:
                    learned = size.detach() - s.step_size_lr * gradient
                    self.step_sizes[self.names[id(weight)]] = learned
        if s.variant == "lamaml":
            self.move(every, of_weights)
        else:
            for weight, gradient in zip(every, of_weights, strict=True):
                weight.grad = gradient
            self.update()
        return loss.item(), scores

    def look_ahead(
        self,
        weights: list[Tensor],
        sizes: list[Tensor],
        batch: Batch,
        replayed: list[Batch],
        slices: list[Batch],
    ) -> tuple[Tensor, Tensor]:
        """L, differentiable in `weights` and `sizes`, and the scores of the batch at the end."""
        s, losses = self.settings, []
        rates = [torch.relu(size) for size in sizes] if s.positive else sizes
        for number, part in enumerate(slices):
            loss = F.cross_entropy(self.scores_at(weights, part), part.labels)
            gradients = torch.autograd.grad(
                loss, weights, create_graph=s.second_order, allow_unused=True
            )
            weights = [
                w if g is None else w - rate * g.clamp(-s.clip, s.clip)
                for w, rate, g in zip(weights, rates, gradients, strict=True)
            ]
            last = number == len(slices) - 1
            found, scores = self.loss_at(weights, batch, replayed, keep=last)
            losses.append(found)
        return torch.stack(losses).mean(), scores

    @torch.no_grad()
    def move(self, weights: list[Tensor], gradients: list[Tensor | None]) -> None:
        """θ ← θ − max(α, 0) ⊙ ∂L/∂θ."""
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                weight.addcmul_(
                    torch.relu(self.step_sizes[self.names[id(weight)]]), gradient, value=-1
                )

    def footprint(self) -> dict[str, int]:
        sizes = sum(size.nbytes for size in self.step_sizes.values())
        return {**super().footprint(), "step_sizes": sizes}

    def state(self) -> State:
        return {**super().state(), "step_sizes": StatePart(dict(self.step_sizes))}

    def load(self, state: State) -> None:
        super().load(state)
        self.step_sizes = dict(state["step_sizes"].tensors)
