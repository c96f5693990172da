"""GEM: gradient episodic memory (Lopez-Paz & Ranzato 2017).

A ring of exemplars is kept of every task. At each step the gradient gₖ of the loss on each past
task's ring is computed; if the batch's gradient g points against any of them, it is replaced by

    g̃ = g + Gᵀv,   v = argmin ½ vᵀ(GGᵀ + εI)v + (Gg)ᵀv   subject to v ≥ γ

the nearest vector that points against none (up to ε and the margin γ); G has the rows gₖ. With
v = γ + u, GGᵀ + εI = LLᵀ and c = Gg + γ(GGᵀ + εI)1 this is non-negative least squares:
u = argmin ‖Lᵀu + L⁻¹c‖ subject to u ≥ 0, solved exactly in float64.

Deviations from the official code
- Every task has its own norm, and the pass over a past task's ring updates its statistics; the
  original has one norm.
- The ring of a task holds `memory.size` images of each of its classes (the original: 256 per task),
  takes each example once, in the first epoch, and never has uninitialised entries.
- The learning rate falls to 0 over each task, as in all methods here.
- `clip_grad` limits g and every gₖ before the projection, as in La-MAML's GEM; the original does
  not clip.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from rivals.baselines.dense_method import DenseMethod, DenseSettings, default
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import MemorySettings
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch

RIDGE = 1e-3  # ε
BLOCK = 1 << 18  # columns of G that are held in float64 at a time


class GEMSettings(DenseSettings):
    """How much is stored, and how the gradient is projected."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    lr: float = default(DenseSettings, "lr", 0.1)
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Momentum of SGD. With momentum, a step is no longer the projected gradient.",
    )
    memory: MemorySettings = MemorySettings(size=25, counted_in="class")
    margin: float = Field(
        0.5,
        ge=0,
        allow_inf_nan=False,
        description="How far a violated constraint is exceeded (γ, 'memory strength').",
    )
    clip_grad: float = Field(
        0.0,
        ge=0,
        description="Largest norm of each gradient; 0 means no limit. La-MAML's GEM: 5 or 2.",
    )


@methods.register("gem")
class GEM(DenseMethod):
    """Fine-tuning along gradients that do not raise the loss on stored examples."""

    settings: GEMSettings
    settings_class = GEMSettings
    trains_all_heads = True
    memory: ExemplarMemory

    def __init__(self, plan: NetworkPlan, settings: GEMSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.memory = ExemplarMemory(
            settings.memory.budget, "ring", seed.child("memory"), rings="task", device=self.device
        )

    def adjust_gradients(self, batch: Batch) -> None:
        parameters = self.trained()
        if self.settings.clip_grad:
            torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip_grad)
        past = [task for task in self.memory.tasks() if task != batch.task]
        if not past:
            return
        rows = torch.stack([self.past_gradient(task, parameters) for task in past])  # (tasks, p)
        gradient = flat([p.grad for p in parameters], parameters)
        better = project(gradient, rows, self.settings.margin)
        if better is gradient:
            return
        self.spent += 2 * rows.numel()  # of Gᵀv, which not every step computes
        pieces = torch.split(better, [p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)

    def past_gradient(self, task: str, parameters: list[Tensor]) -> Tensor:
        """∇ of the loss on the whole ring of `task`, (p,); zero for what it does not use."""
        ring = self.memory.all(task)
        loss = F.cross_entropy(self.train_logits(ring), ring.labels)
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradient = flat(list(found), parameters)
        if self.settings.clip_grad:
            gradient *= (self.settings.clip_grad / (gradient.norm() + 1e-6)).clamp(max=1)
        return gradient

    def after_step(self, batch: Batch) -> None:
        if self.position.epoch == 0:  # its ring is not used before the next task
            self.memory.observe(batch)


def flat(gradients: list[Tensor | None], parameters: list[Tensor]) -> Tensor:
    """Gradients as one row (p,); a parameter without one counts as zeros."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def project(gradient: Tensor, past: Tensor, margin: float, ridge: float = RIDGE) -> Tensor:
    """The vector nearest to `gradient` (p,) that points against no row of `past` (tasks, p).

    That is `gradient` itself if it points against none.
    """
    gram = np.zeros((len(past), len(past)))  # GGᵀ
    along = np.zeros(len(past))  # Gg
    blocks = torch.split(past, BLOCK, 1), torch.split(gradient, BLOCK)
    for some, part in zip(*blocks, strict=True):
        rows = some.double()
        gram += (rows @ rows.T).cpu().numpy()
        along += (rows @ part.double().unsqueeze(1)).squeeze(1).cpu().numpy()
    if not (np.isfinite(gram).all() and np.isfinite(along).all()):
        raise RivalsError("The gradients of earlier tasks are not finite; lower lr.")
    if along.min() >= 0:
        return gradient
    weights = torch.from_numpy(multipliers(gram, along, margin, ridge)).to(past.device)
    better = torch.empty_like(gradient)
    for out, some, part in zip(torch.split(better, BLOCK), *blocks, strict=True):
        out.copy_(part.double() + (weights.unsqueeze(1) * some.double()).sum(0))
    return better


def multipliers(gram: np.ndarray, along: np.ndarray, margin: float, ridge: float) -> np.ndarray:
    """v = argmin ½ vᵀ(GGᵀ + εI)v + (Gg)ᵀv subject to v ≥ γ, exactly."""
    from scipy.linalg import solve_triangular  # slow to import, and no other method needs it
    from scipy.optimize import nnls

    matrix = gram + ridge * np.eye(len(gram))
    lower = np.linalg.cholesky(matrix)
    linear = along + margin * matrix.sum(1)
    beyond, _ = nnls(lower.T, -solve_triangular(lower, linear, lower=True), maxiter=100 * len(gram))
    return margin + np.asarray(beyond)
