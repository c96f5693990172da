"""SparCL (Wang et al. 2022): DER++ with sparse weights, sparse gradients and fewer data.

    weights     a mask over each layer, changed ten times in a task by importance and at random:
                importance = |w| + 0.5 · |∂L(task)/∂w| + 0.5 · |∂L(memory)/∂w|
                at the start        prune to s, then grow to s − slack at random
                on the way          prune to s + slack, then grow back to s at random, from zero
                in the last tenth   prune to s
    gradients   of each layer the largest 1 − s_g of those the mask leaves, chosen every 30 steps
    data        after 10, 20, 30 and 40 % of the epochs a quarter of `remove_examples` is removed:
                those that were forgotten least often; what was never learned stays

First convolutions and 1×1 shortcuts stay dense, as do norms and heads. Weights are stored with
their zeros, so the ticket is the dense network with zeros in it; `retained` counts the others.
FLOPs are charged by density, as RigL counts; `flops_dense` is the cost without sparse kernels.

Deviations from the official code
- Importance has the paper's two gradients, on a fresh batch each and charged; there it is one
  gradient, that of the last batch, after masking.
- The schedule is in shares of the epochs; there it is written for 50 epochs: 5, 10, … 45.
- Exact numbers of weights are kept; there thresholds are strict on both sides, so ties are lost.
- The learning rate falls to 0 over each task; there a cosine schedule is accepted and not applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from rivals.baselines.dense_method import DenseMethod, default
from rivals.baselines.der import DarkReplay, DERSettings, size
from rivals.baselines.masks import WeightMasks, top_count
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.seen_classes import SeenClasses
from rivals.baselines.sparse_account import SparseAccount
from rivals.errors import RivalsError
from rivals.learn.method import StepResult, methods
from rivals.learn.state import State, StatePart
from rivals.nn.dense_layers import DenseConv2d, DenseLayer
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.batching import epoch
from rivals.streams.task import Batch, Task


class SparsitySettings(Settings):
    """How sparse weights and gradients are, and how their masks change."""

    weights: float = Field(0.75, ge=0, lt=1, description="Share of weights that are zero (s).")
    gradients: float = Field(
        0.8,
        ge=0,
        lt=1,
        description="Share of gradients that are zero (s_g); at least sparsity.weights.",
    )
    slack: float = Field(
        0.01, ge=0, lt=1, description="By how much masks are pruned further and grown again."
    )
    refresh_every: int = Field(
        30, ge=1, description="Steps after which the mask of the gradients is chosen again."
    )

    def check(self) -> None:
        super().check()
        if self.gradients < self.weights:
            raise RivalsError(
                f"sparsity.gradients is {self.gradients}, but must be at least sparsity.weights, "
                f"{self.weights}: weights that are zero have no gradient."
            )


class SparCLSettings(DERSettings):
    """DER++ with sparsity."""

    loss_over: Literal["seen", "task"] = default(DERSettings, "loss_over", "task")
    sparsity: SparsitySettings = SparsitySettings()
    remove_examples: float = Field(
        0.3, ge=0, lt=1, description="Share of a task's examples that is removed, in four parts."
    )


class ForgettingRecord:
    """How often each of `count` examples was forgotten, and which examples are left.

    An example that is right in one epoch and wrong in the next was forgotten once. The least
    forgotten are the easiest and are removed first; one that was never right is removed last.
    """

    def __init__(self, count: int) -> None:
        self.left = torch.arange(count)  # (left,) into the task's training set
        self.restart()

    def restart(self) -> None:
        """Start counting anew for the examples that are left."""
        count = len(self.left)
        self.right = torch.zeros(count, dtype=torch.bool)  # when last seen
        self.learned = torch.zeros(count, dtype=torch.bool)  # ever right
        self.forgotten = torch.zeros(count, dtype=torch.int32)  # times

    def record(self, index: Tensor, right: Tensor) -> None:
        """Whether the examples at `index` of those left were classified right."""
        self.forgotten[index] += (self.right[index] & ~right).int()
        self.learned[index] |= right
        self.right[index] = right

    def remove(self, count: int, seed: Seed) -> None:
        """Remove the `count` least forgotten, at random among equals; one always stays."""
        order = torch.randperm(len(self.left), generator=seed.torch())
        often = torch.where(self.learned, self.forgotten, torch.iinfo(torch.int32).max)
        order = order[often[order].sort(stable=True).indices]
        self.left = self.left[order[min(count, len(self.left) - 1) :].sort().values]
        self.restart()

    def tensors(self) -> dict[str, Tensor]:
        names = ("left", "right", "learned", "forgotten")
        return {name: getattr(self, name) for name in names}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            setattr(self, name, tensor)


@methods.register("sparcl")
class SparCL(DenseMethod):
    """Replay that trains few weights on few data."""

    settings: SparCLSettings
    settings_class = SparCLSettings
    trains_all_heads = True
    memory: ExemplarMemory
    seen: SeenClasses

    def __init__(self, plan: NetworkPlan, settings: SparCLSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.memory = ExemplarMemory(
            settings.memory.budget, "reservoir", seed.child("memory"), device=self.device
        )
        self.seen = SeenClasses(self.known, self.network)
        self.replay = DarkReplay(settings, self.memory, self.seen)
        self.account = SparseAccount()
        self.masks = WeightMasks()  # of the weights that are pruned
        self.gradient_masks = WeightMasks()
        self.examples = ForgettingRecord(0)  # of the present task

    @classmethod
    def recipe_sections(cls) -> list[str]:
        """Recipes for DER++ are for SparCL as well."""
        return ["der", *super().recipe_sections()]

    def pruned(self) -> list[nn.Parameter]:
        """The weights that have masks."""
        return [
            layer.weight for number, layer in enumerate(self.layers()) if prunable(number, layer)
        ]

    def layers(self) -> list[DenseLayer]:
        return [x for x in self.network().layers() if isinstance(x, DenseLayer)]

    # A task ------------------------------------------------------------------------------------

    def training_set(self, task: Task) -> Sequence[Task]:
        """The task's examples that are left."""
        if len(self.examples.left) in (0, len(task.train)):
            return [task]
        return [replace(task, train=task.train.subset(self.examples.left))]

    def begin_task(self, task: Task) -> None:
        self.account.dense_flops = 0.0
        super().begin_task(task)
        self.examples = ForgettingRecord(len(task.train))
        s = self.settings.sparsity
        if not self.masks:
            self.masks = WeightMasks.ones(self.pruned())
        self.gradient_masks = WeightMasks()
        self.change_masks(task, prune_to=s.weights, grow_to=max(0.0, s.weights - s.slack))

    def change_masks(self, task: Task, prune_to: float, grow_to: float) -> None:
        """Prune the least important weights, then let others grow from zero, at random."""
        counts = [(kept_count(m, prune_to), kept_count(m, grow_to)) for m in self.masks]
        if all(m.sum() == low == high for m, (low, high) in zip(self.masks, counts, strict=True)):
            return
        scores, masks = self.importance(task), []
        seed = self.seed.child("grow", task.name, self.position.step)
        for number, weight in enumerate(self.pruned()):
            low, high = counts[number]
            kept = pruned_to(self.masks[number], scores[number], low)
            masks.append(grown_to(kept, high, seed.child("layer", number).torch()))
            weight.data.mul_(kept)  # what grows starts at zero, what was pruned ends there
        self.masks = WeightMasks(masks)

    def importance(self, task: Task) -> list[Tensor]:
        """|w| + 0.5 · |gradient on the task| + 0.5 · |gradient on the memory|."""
        seed = self.seed.child("importance", task.name, self.position.step)
        batch = next(epoch(self.training_set(task), self.settings.batching, seed)).to(self.device)
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

    # A step ------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        return self.replay.phase

    def before_step(self, batch: Batch) -> None:
        """Replay from the second task on; in the first there are no earlier examples."""
        if self.previous() is None:
            self.replay.clear()
        else:
            self.replay.draw(batch, self.seed, self.position.step)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.replay.loss(batch)

    def adjust_gradients(self, batch: Batch) -> None:
        """Keep only the largest gradients of weights that are not masked."""
        gradients = [weight.grad for weight in self.pruned()]
        if self.refreshing or not self.gradient_masks:
            share = 1 - self.settings.sparsity.gradients
            self.gradient_masks = WeightMasks([
                top_count((g * m).abs(), max(1, int(share * m.numel()))) & m
                for g, m in zip(gradients, self.masks, strict=True)
                if g is not None
            ])  # fmt: skip
        for gradient, mask, chosen in zip(gradients, self.masks, self.gradient_masks, strict=True):
            assert gradient is not None
            gradient.mul_(mask & chosen)

    @property
    def refreshing(self) -> bool:
        """Whether this step chooses the mask of the gradients."""
        return self.position.step % self.settings.sparsity.refresh_every == 0

    def after_step(self, batch: Batch) -> None:
        self.replay.store(batch)
        self.masks.apply(self.pruned())  # momentum and decay must not bring weights back
        own = self.seen.own_columns(self.replay.batch_scores, batch.task)
        self.examples.record(batch.index.cpu(), (own.argmax(1) == batch.labels).cpu())

    def end_epoch(self, task: Task) -> None:
        s, sparsity, done = self.settings, self.settings.sparsity, self.position.epoch + 1
        every = max(1, round(s.epochs / 10))
        if done >= 0.9 * s.epochs:
            self.change_masks(task, sparsity.weights, sparsity.weights)
        elif done % every == 0:
            more = min(sparsity.weights + sparsity.slack, 0.999)
            self.change_masks(task, more, sparsity.weights)
        quarters = sum(round(s.epochs * k / 10) == done for k in (1, 2, 3, 4))
        if quarters and done < s.epochs and s.remove_examples:
            count = int(len(task.train) * s.remove_examples * quarters / 4)
            self.examples.remove(count, self.seed.child("drop", task.name, done))
            ahead = (s.epochs - done) * s.batching.count(self.training_set(task)[0])
            self.position.steps = self.position.step + ahead

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        self.gradient_masks, self.examples = WeightMasks(), ForgettingRecord(0)

    # Cost --------------------------------------------------------------------------------------

    def counted_step(self, batch: Batch) -> StepResult:
        before = self.spent
        share = self.account.step_share(self.network(), *self.densities())
        result = super().counted_step(batch)
        self.spent = self.account.charge(before, self.spent, share)
        return result

    def densities(self) -> tuple[list[float], list[float]]:
        """The share of weights, and of gradients, that each layer computes.

        In a step that chooses the mask of the gradients, all gradients are computed.
        """
        kept = iter(self.masks.densities())
        pruned = [prunable(number, layer) for number, layer in enumerate(self.layers())]
        weights = [next(kept) if yes else 1.0 for yes in pruned]
        most = 1.0 if self.refreshing else 1 - self.settings.sparsity.gradients
        return weights, [
            min(d, most) if yes else 1.0 for yes, d in zip(pruned, weights, strict=True)
        ]

    @property
    def nominal_share(self) -> float:
        return 1 - self.settings.sparsity.weights

    def retained(self, task: str) -> int:
        """Of the network as it is now, which all tasks share."""
        return sum(int(p.count_nonzero()) for p in self.ticket(task).parameters())

    def task_facts(self, task: str) -> dict[str, Any]:
        return {"retained": self.retained(task), "flops_dense": self.account.dense_flops}

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "masks": self.masks.nbytes}

    def state(self) -> State:
        masks = {**self.masks.tensors("weight"), **self.gradient_masks.tensors("gradient")}
        return {
            **super().state(),
            "masks": StatePart(masks),
            "curation": StatePart(self.examples.tensors()),
            "account": self.account.state(),
        }

    def load(self, state: State) -> None:
        super().load(state)
        tensors, weights = state["masks"].tensors, self.pruned()
        self.masks = WeightMasks.load(tensors, "weight", weights)
        self.gradient_masks = WeightMasks.load(tensors, "gradient", weights)
        self.examples.load(state["curation"].tensors)
        self.account.load(state["account"])


def prunable(number: int, layer: DenseLayer) -> bool:
    """All but a first convolution and the 1×1 convolutions of shortcuts."""
    return not (isinstance(layer, DenseConv2d) and (number == 0 or layer.kernel == 1))


def kept_count(mask: Tensor, sparsity: float) -> int:
    """How many weights of a layer a sparsity leaves; at least one."""
    return max(1, round((1 - sparsity) * mask.numel()))


def pruned_to(mask: Tensor, importance: Tensor, count: int) -> Tensor:
    """The `count` most important weights of `mask`, or all of them if they are fewer."""
    return top_count(importance.masked_fill(~mask, -1), min(count, int(mask.sum())))


def grown_to(mask: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`mask` and as many other weights, drawn at random, as make up `count`."""
    noise = torch.rand(mask.shape, generator=generator).to(mask.device)
    return top_count(noise.masked_fill(mask, 2), max(count, int(mask.sum())))
