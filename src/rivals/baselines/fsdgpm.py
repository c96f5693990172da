"""FS-DGPM, Flattening Sharpness for Dynamic Gradient Projection Memory (Deng et al. 2021).

GPM made flatter and softer. Steps on slices of the batch are tried uphill, inside the space M that
old tasks' inputs fill; the loss of where they lead, on the batch and on exemplars, is made small.
Each direction of M has an importance λ in (0, 1), learned from the same loss, and the weights'
gradient G gives up its part in M in proportion to it:

    θˢ = θˢ⁻¹ + η₁ ∇ loss(θˢ⁻¹; slice s) M diag(λ) Mᵀ     L = mean of loss(θˢ; batch ∪ exemplars)
    r ← r − η₂ ∂L/∂r,  λ = sigmoid(10 r)                  θ ← θ − lr · (G − G M diag(λ) Mᵀ)

What has no basis (norms, heads, everything in the first task) is tried along its whole gradient. At
the end of a task M is made anew from exemplars of all tasks, and λ starts anew.

Where this differs from the official code:
- λ is 1 by default. Official code replaces λ by sigmoid(10 λ) after each step and so loses it to
  the optimiser: λ stays near 1, whatever the loss says. `importance=learned` has an r that
  persists, as the paper means it, and forgets more: docs/reproduction.md.
- A task has its own norm and head (`own`); official code shares the norm, and on permuted MNIST the
  head, which has no basis there either. Biases, which official networks lack, then stand still
  after the first task.
- lr falls linearly to 0 over a task (`schedule`); no early stopping on CIFAR-100.
- Exemplars drawn for the bases pass through their own task's norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from rivals.baselines.meta import Meta, MetaSettings, clipped
from rivals.baselines.subspace import away_from, check_energy, collect, grow, thresholds, within
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart, load_optimiser, optimiser_tensors
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task

STEEPNESS = 10.0  # of the sigmoid that makes λ


class FSDGPMSettings(MetaSettings):
    """How far is tried, how much is protected, and how importance is learned."""

    lr: float = 0.01
    slices: int = 2
    clip: float = 2.0
    second_order: bool = False
    variant: Literal["sharpness", "lookahead", "dgpm"] = Field(
        "sharpness", description="sharpness: try uphill | lookahead: downhill | dgpm: only for λ"
    )
    perturbation: float = Field(0.05, description="η₁, of the steps that are tried")
    importance: Literal["learned", "ones"] = Field(
        "ones", description="of directions: ones | learned"
    )
    importance_start: float = Field(0.3, description="r; λ = 0.95")
    importance_lr: float = Field(0.01, description="η₂")
    energy: tuple[float, ...] = Field(
        (0.99,), description="share of the inputs that a basis holds (ε), as in GPM"
    )
    energy_step: float = Field(0.0005, description="more of it with each task")
    samples: int = Field(300, description="exemplars whose inputs are looked at")

    def check(self) -> None:
        super().check()
        check_energy(self.energy)
        self.not_negative("perturbation", "importance_start", "importance_lr", "energy_step")
        self.at_least(1, "samples")


@methods.register("fsdgpm")
class FSDGPM(Meta):
    """Flat minima away from what old tasks need, as far as they need it."""

    settings: FSDGPMSettings
    settings_class = FSDGPMSettings

    def __init__(self, plan: NetworkPlan, settings: FSDGPMSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        layers = len(self.build("trial").shared_parameters())
        self.energy = thresholds(settings.energy, layers)
        self.bases: list[Tensor] = []  # (features, k), one a layer; none in the first task
        self.raw: list[Tensor] = []  # r (k,), one a layer
        self.tuner: torch.optim.Optimizer | None = None  # of r

    def prepare(self) -> None:
        super().prepare()
        s = self.settings
        if self.bases and s.importance == "learned":
            self.tuner = torch.optim.SGD(self.raw, lr=s.importance_lr, momentum=s.momentum)

    def protected(self) -> list[tuple[Tensor, Tensor | None]]:
        """The basis of every layer and the importance λ (k,) of its directions; None if all is 1.

        Nothing in the first task. Layers are the first of the weights, wherever these are listed.
        """
        if self.settings.importance == "ones":
            return [(basis, None) for basis in self.bases]
        lambdas = [torch.sigmoid(STEEPNESS * raw) for raw in self.raw]
        return list(zip(self.bases, lambdas, strict=True))

    # A step ------------------------------------------------------------------------------------

    def glance(
        self, batch: Batch, replayed: list[Batch], slices: list[Batch]
    ) -> tuple[float, Tensor]:
        s = self.settings
        present = self.weights(batch.task)
        every = self.weights(batch.task, *(each.task for each in replayed))
        raw = [] if self.tuner is None else self.raw
        loss, scores = self.perturbed(present, batch, replayed, slices)
        found = torch.autograd.grad(loss, [*every, *raw], allow_unused=True)
        gradients = found[: len(every)]
        if self.tuner is not None:
            for r, gradient in zip(raw, clipped(found[len(every) :], s.clip), strict=True):
                r.grad = gradient
            self.tuner.step()
        if s.variant == "dgpm":
            loss, scores = self.loss_at(present, batch, replayed, keep=True)
            gradients = torch.autograd.grad(loss, every, allow_unused=True)
        for weight, gradient in zip(every, clipped(gradients, s.clip), strict=True):
            weight.grad = gradient
        self.adjust_gradients(batch)
        self.update()
        return loss.item(), scores

    def perturbed(
        self, weights: list[Tensor], batch: Batch, replayed: list[Batch], slices: list[Batch]
    ) -> tuple[Tensor, Tensor]:
        """L, differentiable in `weights` and in r, and the scores of the batch at the end."""
        s, losses = self.settings, []
        step = s.perturbation if s.variant == "sharpness" else -s.perturbation
        for number, part in enumerate(slices):
            loss = F.cross_entropy(self.scores_at(weights, part), part.labels)
            found = torch.autograd.grad(
                loss, weights, create_graph=s.second_order, allow_unused=True
            )
            gradients = self.inside(found)
            weights = [
                w if g is None else w + step * g.clamp(-s.clip, s.clip)
                for w, g in zip(weights, gradients, strict=True)
            ]
            last = number == len(slices) - 1 and s.variant != "dgpm"
            value, scores = self.loss_at(weights, batch, replayed, keep=last)
            losses.append(value)
        return torch.stack(losses).mean(), scores

    def inside(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """What is tried of the gradients: their part in M, by importance, where there is an M."""
        found = list(gradients)
        for layer, (basis, importance) in enumerate(self.protected()):
            gradient = found[layer]
            assert gradient is not None
            found[layer] = within(gradient, basis, importance)
        return found

    @torch.no_grad()
    def adjust_gradients(self, batch: Batch) -> None:
        """G ← G − G M diag(λ) Mᵀ, weight decay included in G."""
        self.decay()
        weights = self.weights(batch.task)
        for layer, (basis, importance) in enumerate(self.protected()):
            gradient = weights[layer].grad
            assert gradient is not None
            weights[layer].grad = away_from(gradient, basis, importance)
        if self.bases and self.settings.own == "nothing":
            self.hold_biases(batch.task)

    def hold_biases(self, task: str) -> None:
        """What all tasks share and nothing protects stands still, as in GPM."""
        network = self.network(task)
        for tensor in network.task_parameters(task):
            if tensor is not network.heads[task].weight:
                tensor.grad = None

    # The end of a task -------------------------------------------------------------------------

    def end_task(self, task: Task) -> None:
        """Bases of what the exemplars of all tasks fill; the old ones are forgotten."""
        s, before = self.settings, len(self.known) - 1
        drawn = self.memory.sample(s.samples, self.seed.child("samples", task.name))
        batches = [(each.task, each.images) for each in drawn]
        with self.charged():
            inputs = collect(self.network(task.name), batches)[: len(self.energy)]
            self.bases = [
                grow(torch.zeros(each.features, 0), each, min(1.0, e + s.energy_step * before))
                for each, e in zip(inputs, self.energy, strict=True)
            ]
        self.spent += sum(each.decomposition_flops() for each in inputs)
        starts = [torch.full((basis.shape[1],), s.importance_start) for basis in self.bases]
        self.raw, self.tuner = [nn.Parameter(start) for start in starts], None
        super().end_task(task)

    def footprint(self) -> dict[str, int]:
        held = sum(tensor.nbytes for tensor in (*self.bases, *self.raw))
        return {**super().footprint(), "bases": held}

    def state(self) -> State:
        done = len(self.known) - bool(self.current)
        bases = {f"layer{number}": basis for number, basis in enumerate(self.bases)}
        working = {f"raw{number}": raw.detach() for number, raw in enumerate(self.raw)}
        if self.tuner is not None:
            working |= optimiser_tensors(self.tuner, "tuner")
        parts = {f"bases/{done}": StatePart(bases, fixed=True), "importance": StatePart(working)}
        return {**super().state(), **parts}

    def load(self, state: State) -> None:
        saved = next(part for name, part in state.items() if name.startswith("bases/")).tensors
        working = state["importance"].tensors
        self.bases = [saved[f"layer{number}"] for number in range(len(saved))]
        self.raw = [nn.Parameter(working[f"raw{n}"].clone()) for n in range(len(saved))]
        super().load(state)
        if self.tuner is not None:
            load_optimiser(self.tuner, working, "tuner")
