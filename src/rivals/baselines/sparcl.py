"""SparCL (Wang et al. 2022): DER++ with sparse weights, sparse gradients and fewer data.

    weights     a mask over each layer, renewed ten times in a task by importance and chance:
                importance = |w| + 0.5 · |∂L(task)/∂w| + 0.5 · |∂L(memory)/∂w|
                at its start        prune to s, then grow to s − slack at random
                on the way          prune to s + slack, then grow back to s at random, from zero
                in its last tenth   prune to s
    gradients   of each layer the largest 1 − s_g of those the mask leaves, chosen every 30 steps
    data        after 10, 20, 30 and 40 % of the epochs a quarter of `remove` of the examples goes:
                those that were forgotten least often; what was never learned stays

First convolutions and 1×1 shortcuts stay dense, as do norms and heads. Weights are held with their
zeros, so the ticket is the dense network with zeros in it; `retained` counts the others. FLOPs are
charged as RigL counts, by density; `flops_dense` is what a machine without sparse kernels pays.

Deviations from the official code
- Importance has the paper's two gradients, on a fresh batch each and charged; there it is one
  gradient, that of the last batch, after masking.
- The schedule is in shares of the epochs; there it is written for 50 epochs: 5, 10, … 45.
- Exact numbers of weights are kept; there thresholds are strict on both sides, so ties are lost.
- The step size falls to 0 over each task; there a cosine is accepted and not applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from rivals.baselines.curation import Curation
from rivals.baselines.der import DER, DERSettings, size
from rivals.baselines.masks import pack, top_count, unpack
from rivals.baselines.sparse_accounting import ByDensity, share_left
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.dense_layers import DenseConv2d, DenseLayer
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.batching import epoch
from rivals.streams.task import Batch, Task


class SparCLSettings(DERSettings):
    """How sparse, and how it changes."""

    loss_over: Literal["seen", "task"] = "task"
    sparsity: float = Field(0.75, description="s, of the weights")
    gradient_sparsity: float = Field(0.8, description="s_g, at least s")
    slack: float = Field(0.01, description="by which masks are pruned further and grown again")
    refresh: int = Field(30, description="steps for which a gradient mask serves")
    remove: float = Field(0.3, description="of a task's examples, in four parts")

    def check(self) -> None:
        super().check()
        for name in ("sparsity", "gradient_sparsity", "slack", "remove"):
            if not 0 <= getattr(self, name) < 1:
                raise RivalsError(
                    f"{name} is {getattr(self, name)}, but is a share from 0 to below 1."
                )
        if self.gradient_sparsity < self.sparsity:
            raise RivalsError(
                f"gradient_sparsity is {self.gradient_sparsity}, but must be at least sparsity, "
                f"{self.sparsity}: weights that are not there have no gradient."
            )
        if self.refresh < 1:
            raise RivalsError(f"refresh is {self.refresh}, but must be at least 1.")


@methods.register("sparcl")
class SparCL(ByDensity, DER):
    """Replay that trains few weights on few data."""

    settings: SparCLSettings
    settings_class = SparCLSettings

    def __init__(self, plan: NetworkPlan, settings: SparCLSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.masks: list[Tensor] = []  # of the weights that are pruned, layer by layer
        self.gradient_masks: list[Tensor] = []
        self.curation = Curation(0)

    def pruned(self) -> list[nn.Parameter]:
        """The weights that masks are about."""
        return [
            layer.weight for number, layer in enumerate(self.layers()) if prunable(number, layer)
        ]

    def layers(self) -> list[DenseLayer]:
        return [x for x in self.network("shared").layers() if isinstance(x, DenseLayer)]

    # Data --------------------------------------------------------------------------------------

    def training_set(self, task: Task) -> Sequence[Task]:
        """What is left of the task's examples."""
        if len(self.curation.left) in (0, len(task.train)):
            return [task]
        return [replace(task, train=task.train.subset(self.curation.left))]

    # Masks -------------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        self.curation = Curation(len(task.train))
        s = self.settings
        if not self.masks:
            self.masks = [torch.ones_like(w, dtype=torch.bool) for w in self.pruned()]
        self.gradient_masks = []
        self.renew(task, prune_to=s.sparsity, grow_to=max(0.0, s.sparsity - s.slack))

    def renew(self, task: Task, prune_to: float, grow_to: float) -> None:
        """Prune the least important weights, then let others grow from zero, at random."""
        counts = [(kept_count(m, prune_to), kept_count(m, grow_to)) for m in self.masks]
        if all(m.sum() == low == high for m, (low, high) in zip(self.masks, counts, strict=True)):
            return
        scores = self.importance(task)
        seed = self.seed.child("grow", task.name, self.position.step)
        for number, weight in enumerate(self.pruned()):
            low, high = counts[number]
            kept = pruned_to(self.masks[number], scores[number], low)
            self.masks[number] = grown_to(kept, high, seed.child("layer", number).torch())
            weight.data.mul_(kept)  # what grows starts at zero, what was pruned ends there

    def importance(self, task: Task) -> list[Tensor]:
        """|w| + 0.5 · |gradient on the task| + 0.5 · |gradient on the memory|."""
        seed = self.seed.child("importance", task.name, self.position.step)
        batch = next(epoch(self.training_set(task), self.settings.batching, seed))
        network = self.network(task.name).learning(False)
        found = [weight.detach().abs() for weight in self.pruned()]
        memory = self.memory.sample(len(batch.labels), seed)
        with self.charged():
            for parts in ([batch], memory):
                rows = [
                    F.cross_entropy(network(p.images, p.task), p.labels, reduction="sum")
                    for p in parts
                ]
                if rows:
                    loss = torch.stack(rows).sum() / size(parts)
                    gradients = torch.autograd.grad(loss, self.pruned())
                    found = [f + 0.5 * g.abs() for f, g in zip(found, gradients, strict=True)]
        return found

    def adjust_gradients(self, batch: Batch) -> None:
        """Only the largest gradients of weights that are there."""
        gradients = [weight.grad for weight in self.pruned()]
        if self.refreshing or not self.gradient_masks:
            share = 1 - self.settings.gradient_sparsity
            self.gradient_masks = [
                top_count((g * m).abs(), max(1, int(share * m.numel()))) & m
                for g, m in zip(gradients, self.masks, strict=True)
                if g is not None
            ]
        for gradient, mask, chosen in zip(gradients, self.masks, self.gradient_masks, strict=True):
            assert gradient is not None
            gradient.mul_(mask & chosen)

    @property
    def refreshing(self) -> bool:
        return self.position.step % self.settings.refresh == 0

    def after_step(self, batch: Batch) -> None:
        super().after_step(batch)
        for weight, mask in zip(self.pruned(), self.masks, strict=True):
            weight.data.mul_(mask)  # momentum and decay do not bring weights back
        first = self.first_class(batch.task)
        own = self.given[:, first : first + len(self.known[batch.task].classes)]
        self.curation.record(batch.index, own.argmax(1) == batch.labels)

    def before_step(self, batch: Batch) -> None:
        """Replay only once there is a past; in the first task there is none."""
        super().before_step(batch)
        if self.previous() is None:
            self.drawn = [], []

    def end_epoch(self, task: Task) -> None:
        s, done = self.settings, self.position.epoch + 1
        every = max(1, round(s.epochs / 10))
        if done >= 0.9 * s.epochs:
            self.renew(task, s.sparsity, s.sparsity)
        elif done % every == 0:
            self.renew(task, min(s.sparsity + s.slack, 0.999), s.sparsity)
        quarters = sum(round(s.epochs * k / 10) == done for k in (1, 2, 3, 4))
        if quarters and done < s.epochs and s.remove:
            count = int(len(task.train) * s.remove * quarters / 4)
            self.curation.drop(count, self.seed.child("drop", task.name, done))
            ahead = (s.epochs - done) * s.batching.count(self.training_set(task)[0])
            self.position.steps = self.position.step + ahead

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        self.gradient_masks, self.curation = [], Curation(0)

    # Account -----------------------------------------------------------------------------------

    def densities(self) -> tuple[list[float], list[float]]:
        """Of weights and of gradients; a gradient mask is chosen among all gradients there are."""
        masks = iter(self.masks)
        pruned = [prunable(number, layer) for number, layer in enumerate(self.layers())]
        weights = [share_left(next(masks)) if yes else 1.0 for yes in pruned]
        most = 1.0 if self.refreshing else 1 - self.settings.gradient_sparsity
        return weights, [
            min(d, most) if yes else 1.0 for yes, d in zip(pruned, weights, strict=True)
        ]

    @property
    def nominal_share(self) -> float:
        return 1 - self.settings.sparsity

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "masks": sum(pack(mask).nbytes for mask in self.masks)}

    def state(self) -> State:
        masks = {f"weight{i}": pack(mask) for i, mask in enumerate(self.masks)}
        masks |= {f"gradient{i}": pack(mask) for i, mask in enumerate(self.gradient_masks)}
        facts = {"gradients": bool(self.gradient_masks)}
        curation = StatePart(self.curation.tensors())
        return {**super().state(), "masks": StatePart(masks, facts), "curation": curation}

    def load(self, state: State) -> None:
        super().load(state)
        tensors, facts = state["masks"].tensors, state["masks"].facts
        weights = list(enumerate(self.pruned()))
        self.masks = [unpack(tensors[f"weight{i}"], w) for i, w in weights] if tensors else []
        self.gradient_masks = (
            [unpack(tensors[f"gradient{i}"], w) for i, w in weights] if facts["gradients"] else []
        )
        self.curation.load(state["curation"].tensors)


def prunable(number: int, layer: DenseLayer) -> bool:
    """All but a first convolution and the 1×1 ones of shortcuts."""
    return not (isinstance(layer, DenseConv2d) and (number == 0 or layer.kernel == 1))


def kept_count(mask: Tensor, sparsity: float) -> int:
    """Weights of a layer that a sparsity leaves; never none."""
    return max(1, round((1 - sparsity) * mask.numel()))


def pruned_to(mask: Tensor, importance: Tensor, count: int) -> Tensor:
    """The `count` most important of the weights in `mask`, or all of them if they are fewer."""
    return top_count(importance.masked_fill(~mask, -1), min(count, int(mask.sum())))


def grown_to(mask: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`mask` and as many others, drawn at random, as it takes to be `count`."""
    chance = torch.rand(mask.shape, generator=generator)
    return top_count(chance.masked_fill(mask, 2), max(count, int(mask.sum())))
