"""La-MAML, look-ahead MAML (Gupta, Yadav and Paull 2020): every weight learns its own step size.

A few inner steps on parts of the batch are tried. The loss of where they lead, on the batch and on
exemplars, first changes the step sizes α and then, with the new ones, the weights θ:

    θˢ = θˢ⁻¹ − α ⊙ ∇ loss(θˢ⁻¹; part s)             L = mean over s of loss(θˢ; batch ∪ exemplars)
    α ← α − η ∂L/∂α                                  θ ← θ − max(α, 0) ⊙ ∂L/∂θ

Deviations from the official code
- A task has its own norm and head (`parity.task_specific`); official networks have no norm, and on
  permuted MNIST one head for all tasks: `norm=none` and `parity.task_specific=nothing`.
- A batch is offered to the memory after its step, not part by part within it, so no batch is
  replayed to itself; with `replay_from=past`, neither is any other of the present task.
- Entries of the gradients that are tried are clamped on permuted MNIST too; there the official code
  computes that and drops the result.
- lr, momentum and weight_decay are used only by the variants `sync` (learned α, but plain steps of
  θ) and `cmaml` (α stays as it is).
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from rivals.baselines.dense_method import DenseMethod
from rivals.baselines.lookahead import Lookahead, LookaheadSettings, clipped
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.learn.method import StepResult, methods
from rivals.learn.state import State, StatePart
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch


class LaMAMLSettings(LookaheadSettings):
    """Step sizes, and how they are learned."""

    step_size: float = Field(
        0.1, ge=0, allow_inf_nan=False, description="Step size of every weight at the start (α)."
    )
    step_size_lr: float = Field(
        0.25, ge=0, allow_inf_nan=False, description="Learning rate of the step sizes (η)."
    )
    positive_steps: bool = Field(
        False, description="Use max(α, 0) in inner steps too, as in the official code on MNIST."
    )
    variant: Literal["lamaml", "sync", "cmaml"] = Field(
        "lamaml",
        description="With lamaml, step sizes are learned and used; with sync, learned, but weights "
        "take plain SGD steps; with cmaml, fixed.",
    )


@methods.register("lamaml")
class LaMAML(DenseMethod):
    """Step sizes that learn not to interfere with earlier tasks."""

    settings: LaMAMLSettings
    settings_class = LaMAMLSettings
    memory: ExemplarMemory

    def __init__(self, plan: NetworkPlan, settings: LaMAMLSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.parity = settings.parity
        self.memory = ExemplarMemory(
            settings.memory.budget, "reservoir", seed.child("memory"), device=self.device
        )
        self.lookahead = Lookahead(self, settings, self.memory)
        self.step_sizes: dict[str, Tensor] = {}  # α, by the name of the weight

    def prepare(self) -> None:
        super().prepare()
        self.lookahead.prepare()
        for weight in self.trained():
            start = torch.full_like(weight, self.settings.step_size, requires_grad=False)
            self.step_sizes.setdefault(self.lookahead.names[id(weight)], start)

    def trained(self) -> list[Tensor]:
        return self.lookahead.all_weights()

    # A step ------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        return self.lookahead.phase

    def before_step(self, batch: Batch) -> None:
        self.lookahead.draw(batch, self.seed, self.position.step)

    def step(self, batch: Batch) -> StepResult:
        result = self.lookahead.step(batch, self.seed, self.position.step, self.meta_update)
        if self.position.epoch == 0:
            self.memory.observe(batch)
        return result

    def step_facts(self) -> dict[str, float]:
        """In `lamaml` every weight has a learned step size of its own."""
        return {} if self.settings.variant == "lamaml" else super().step_facts()

    def meta_update(
        self, batch: Batch, replayed: list[Batch], parts: list[Batch]
    ) -> tuple[float, Tensor]:
        """One update of step sizes and weights: its loss and the scores of the batch."""
        s, names = self.settings, self.lookahead.names
        present = self.lookahead.weights(batch.task)
        every = self.lookahead.weights(batch.task, *(each.task for each in replayed))
        sizes = [self.step_sizes[names[id(w)]].clone().requires_grad_() for w in present]
        loss, scores = self.look_ahead(present, sizes, batch, replayed, parts)
        found = torch.autograd.grad(loss, [*every, *sizes], allow_unused=True)
        of_weights = clipped(found[: len(every)], s.clip_grad)
        of_sizes = clipped(found[len(every) :], s.clip_grad)
        if s.variant != "cmaml":
            for weight, size, gradient in zip(present, sizes, of_sizes, strict=True):
                if gradient is not None:
                    learned = size.detach() - s.step_size_lr * gradient
                    self.step_sizes[names[id(weight)]] = learned
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
        parts: list[Batch],
    ) -> tuple[Tensor, Tensor]:
        """L, differentiable in `weights` and `sizes`, and the scores of the batch at the end."""
        s, ahead, losses = self.settings, self.lookahead, []
        rates = [torch.relu(size) for size in sizes] if s.positive_steps else sizes
        for number, part in enumerate(parts):
            loss = F.cross_entropy(ahead.scores_at(weights, part), part.labels)
            gradients = torch.autograd.grad(
                loss, weights, create_graph=s.second_order, allow_unused=True
            )
            weights = [
                w if g is None else w - rate * g.clamp(-s.clip_grad, s.clip_grad)
                for w, rate, g in zip(weights, rates, gradients, strict=True)
            ]
            last = number == len(parts) - 1
            found, scores = ahead.loss_at(weights, batch, replayed, keep=last)
            losses.append(found)
        return torch.stack(losses).mean(), scores

    @torch.no_grad()
    def move(self, weights: list[Tensor], gradients: list[Tensor | None]) -> None:
        """θ ← θ − max(α, 0) ⊙ ∂L/∂θ."""
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                size = self.step_sizes[self.lookahead.names[id(weight)]]
                weight.addcmul_(torch.relu(size), gradient, value=-1)

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        sizes = sum(size.nbytes for size in self.step_sizes.values())
        return {**super().footprint(), "step_sizes": sizes}

    def state(self) -> State:
        return {**super().state(), "step_sizes": StatePart(dict(self.step_sizes))}

    def load(self, state: State) -> None:
        super().load(state)
        saved = state["step_sizes"].tensors
        self.step_sizes = {name: size.to(self.device) for name, size in saved.items()}
