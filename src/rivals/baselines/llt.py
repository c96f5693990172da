"""LLT: Lifelong Lottery Tickets (Chen et al. 2021), top-down. One sparse network for all tasks.

A class-incremental learner with exemplars, two heads per task, and distillation:

    loss = CE_auxiliary + KD_auxiliary + 0.5 · (CE_main + KD_main)

auxiliary   new images and exemplars in their natural proportion
main        as many images of each task; these heads are used to predict
KD          both heads stay near their outputs before the task, on unlabelled pictures

Top-down: after a task the network is pruned `pruning.rounds` times, each time by 20 % of the
weights left, the smallest of all layers, and retrained for a while. The next task starts from the
initial values of the weights that are left. 1 + 1 + 2 + 3 + 5 rounds leave 0.8¹² = 6.87 %; after as
many tasks as `pruning.rounds` has numbers, nothing more is pruned, so any number of tasks works.

Unlabelled pictures are the neighbours of the exemplars in a pool (a data set, or a folder); with
`distillation.pool: none`, the exemplars and the task's own images. The ticket is the dense network
with zeros in it; `retained` counts the others. `flops` are charged by density, `flops_dense` not.

Deviations from the official code
- Only the top-down schedule; bottom-up decides by test accuracy, over twice as many rounds.
- Retraining follows every pruning, so what is measured and shipped is the sparse network.
- All layers but the heads are pruned; there all convolutions, in a network that has no others.
- One forward pass for all parts of a step; the learning rate falls linearly to 0 before pruning.
- 80 Million Tiny Images, its pool, was withdrawn; so there is no pool by default.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from rivals.baselines.dense_method import DenseMethod, DenseSettings, default
from rivals.baselines.masks import WeightMasks, top_count
from rivals.baselines.memory.exemplar import Replay
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import MemorySettings
from rivals.baselines.memory.pool import UnlabelledPool
from rivals.baselines.seen_classes import SeenClasses
from rivals.baselines.sparse_account import SparseAccount
from rivals.errors import RivalsError
from rivals.learn.method import StepResult, methods
from rivals.learn.state import State, StatePart
from rivals.nn.builders import DenseBuilder
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.head import Head
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.task_norm import NormState
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.data.catalogue import CATALOGUE
from rivals.streams.task import Batch, Task

DATASETS = tuple(data.name for data in CATALOGUE)
BATCH = 256  # images at a time, outside of steps


class PruningSettings(Settings):
    """How the network is pruned after each task."""

    enabled: bool = Field(True, description="Prune top-down; false keeps a dense network.")
    rounds: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (1, 1, 2, 3, 5),
        description="Rounds of pruning after the first task, the second, and so on.",
    )
    share: float = Field(
        0.2, gt=0, lt=1, description="Share of the remaining weights that a round removes."
    )
    retrain_share: float = Field(
        0.3, gt=0, lt=1, description="Epochs of retraining after a round, as a share of epochs."
    )
    retrain_lr_factor: float = Field(
        0.01, gt=0, lt=1, description="Learning rate of retraining, as a share of lr."
    )
    rewind: bool = Field(
        True,
        description="Start a task from the initial values of the weights, instead of the last.",
    )

    def check(self) -> None:
        super().check()
        if not self.rounds:
            raise RivalsError("pruning.rounds is empty; give at least one number, such as 1.")


class DistillationSettings(Settings):
    """How the outputs for old classes are held in place."""

    enabled: bool = Field(True, description="Distil the outputs before a task into the network.")
    pool: str = Field(
        "none",
        description="A data set or folder of unlabelled pictures; none: exemplars and new images.",
    )
    neighbours: int = Field(50, ge=1, description="Pictures of the pool for each exemplar.")
    images: int = Field(5000, ge=1, description="Unlabelled pictures at most.")
    temperature: float = Field(
        2.0, gt=0, allow_inf_nan=False, description="Distillation temperature."
    )

    def check(self) -> None:
        super().check()
        if self.pool not in ("none", *DATASETS) and not Path(self.pool).is_dir():
            raise RivalsError(
                f"distillation.pool is '{self.pool}', which is not a folder; use none, a folder of "
                f"pictures, or one of {', '.join(DATASETS)}."
            )


class LLTSettings(DenseSettings):
    """Exemplars, pruning and distillation."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    shared_norms: bool = default(DenseSettings, "shared_norms", True)
    weight_decay: float = default(DenseSettings, "weight_decay", 5e-4)
    memory: MemorySettings = MemorySettings(size=100, counted_in="class")
    pruning: PruningSettings = PruningSettings()
    distillation: DistillationSettings = DistillationSettings()

    def check(self) -> None:
        super().check()
        self.need_shared_norms("the classes of all tasks compete")


class TwoHeadedNetwork(DenseNetwork):
    """A main and an auxiliary head for each task, on one norm."""

    norms = "shared"
    auxiliary_heads: MutableMapping[str, Head]

    def __init__(
        self, body: nn.Module, input_shape: tuple[int, int, int], seed: Seed,
        tasks: TaskTable | None = None,
    ) -> None:  # fmt: skip
        super().__init__(body, input_shape, seed, tasks)
        self.auxiliary_heads = self.tasks.column("auxiliary_head")

    def add(self, task: str, classes: int, ancestor: str | None = None) -> None:
        super().add(task, classes, ancestor)
        seed = self.seed.child("head", f"{task} (auxiliary)").value
        head = Head(classes, self.features, 1, self.features, seed)
        self.auxiliary_heads[task] = head.to(self.device)

    def own(self, task: str) -> dict[str, NormState | Head]:
        return {**super().own(task), "auxiliary_head": self.auxiliary_heads[task]}

    def all_scores(self, images: Tensor, tasks: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Scores of all classes of `tasks` by the main and by the auxiliary heads."""
        flow = self.flow(images, tasks[0])
        main = torch.cat([self.heads[task](flow) for task in tasks], 1)
        return main, torch.cat([self.auxiliary_heads[task](flow) for task in tasks], 1)


@methods.register("llt")
class LLT(DenseMethod):
    """Replay and distillation in a network that is pruned from task to task."""

    settings: LLTSettings
    settings_class = LLTSettings
    trains_all_heads = True
    memory: ExemplarMemory
    seen: SeenClasses

    def __init__(self, plan: NetworkPlan, settings: LLTSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.memory = ExemplarMemory(
            settings.memory.budget, "reservoir", seed.child("memory"), device=self.device
        )
        self.seen = SeenClasses(self.known, self.network)
        self.account = SparseAccount()
        self.masks = WeightMasks()  # empty before the first pruning
        self.unlabelled: dict[str, Tensor] = {}  # images (n, …); main, auxiliary (n, classes)
        self.drawn: list[Replay] = []  # for the auxiliary heads
        self.balanced: list[Replay] = []  # for the main heads
        self.rows = torch.empty(0, dtype=torch.int64)  # of `unlabelled`

    def build(self, tasks: TaskTable | None = None, seed: Seed | None = None) -> TwoHeadedNetwork:
        plan = self.plan.settings
        builder = DenseBuilder(plan.units, self.settings.network_size, plan.activation, plan.norm)
        seed = seed or self.seed.child("network")
        network = TwoHeadedNetwork(self.plan.body(builder), self.plan.input_shape, seed, tasks)
        return network.to(self.device)

    def two_headed(self) -> TwoHeadedNetwork:
        network = self.network()
        assert isinstance(network, TwoHeadedNetwork)
        return network

    # Rounds of pruning -------------------------------------------------------------------------

    def rounds(self) -> int:
        """Rounds of pruning in the present task."""
        before = sum(task != self.current for task in self.known)
        planned = self.settings.pruning.rounds if self.settings.pruning.enabled else ()
        return planned[before] if before < len(planned) else 0

    def retrain_epochs(self) -> int:
        return max(1, round(self.settings.pruning.retrain_share * self.settings.epochs))

    def planned_epochs(self) -> int:
        return self.settings.epochs + self.rounds() * self.retrain_epochs()

    def end_epoch(self, task: Task) -> None:
        done = self.position.epoch + 1 - self.settings.epochs
        if 0 <= done < self.rounds() * self.retrain_epochs() and done % self.retrain_epochs() == 0:
            weights = self.network(task.name).weights()
            masks = self.masks if self.masks else WeightMasks.ones(weights)
            share = self.settings.pruning.share
            self.masks = WeightMasks(smallest_removed(weights, list(masks), share))
            self.masks.apply(weights)

    def rate(self) -> float:
        """Linearly to 0 over the epochs before pruning, then small."""
        s, at = self.settings, self.position
        if at.epoch >= s.epochs:
            return s.lr * s.pruning.retrain_lr_factor
        return s.lr * (1 - at.step / (at.steps * s.epochs / self.planned_epochs()))

    # A task ------------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        self.account.dense_flops = 0.0
        old = list(self.known)
        if old and self.settings.distillation.enabled:
            with self.charged():
                self.unlabelled = self.choose_unlabelled(task, old)
        super().begin_task(task)
        weights = self.network().weights()
        if self.masks and self.settings.pruning.rewind:
            initial = self.build().weights()  # a function of the seed, not stored
            with torch.no_grad():
                for weight, first in zip(weights, initial, strict=True):
                    weight.copy_(first)
        self.masks.apply(weights)

    @torch.no_grad()
    def choose_unlabelled(self, task: Task, old: Sequence[str]) -> dict[str, Tensor]:
        """Pictures without labels, and the scores of both heads of the old tasks for them now."""
        s = self.settings.distillation
        stored = torch.cat([part.train.images for part in self.memory.portions()])
        if s.pool == "none":
            images = torch.cat([stored, task.train.images])
        else:
            pool = open_pool(s.pool, self.plan.input_shape)
            features = partial(self.seen.features, task=old[-1])
            images = pool.take(pool.nearest(stored, features, s.neighbours).index)
        generator = self.seed.child("unlabelled", task.name).torch()
        images = images[torch.randperm(len(images), generator=generator)[: s.images]]
        images = images.to(self.device)
        network = self.two_headed()
        network.learning(False)
        scores = [
            network.all_scores(task.preprocessing(part), old)
            for part in torch.split(images, BATCH)
        ]  # fmt: skip
        main, auxiliary = (torch.cat(parts) for parts in zip(*scores, strict=True))
        return {"images": images, "main": main, "auxiliary": auxiliary}

    def before_step(self, batch: Batch) -> None:
        """Draw exemplars in their natural proportion, then as many of each task."""
        seed = self.seed.child("replay", batch.task, self.position.step)
        count, tasks = len(batch.labels), len(self.known)
        self.drawn, self.balanced, self.rows = [], [], self.rows[:0]
        if tasks == 1:
            return
        epoch = self.position.steps / self.planned_epochs()  # in steps
        natural = max(1, round(len(self.memory) / epoch))
        self.drawn = self.memory.sample(natural, seed.child("auxiliary"))
        self.balanced = self.memory.sample(max(1, count - count // tasks), seed.child("main"))
        if self.unlabelled:
            generator = seed.child("unlabelled").torch()
            pictures = len(self.unlabelled["images"])
            rows = torch.randint(pictures, (count,), generator=generator)
            self.rows = rows.to(self.device)

    @property
    def phase(self) -> str:
        parts = sum(len(p.labels) for p in self.drawn), sum(len(p.labels) for p in self.balanced)
        return "with {} + {} exemplars and {} pictures".format(*parts, len(self.rows))

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        tasks, count = len(self.known), len(batch.labels)
        images = [batch.images, *(part.images for part in (*self.drawn, *self.balanced))]
        if len(self.rows):
            prepare = self.known[batch.task].preprocessing
            images.append(prepare(self.unlabelled["images"][self.rows]))
        network = self.two_headed()
        network.learning(True)
        main, auxiliary = network.all_scores(torch.cat(images), list(self.known))
        labels = [self.seen.labels(part) for part in (batch, *self.drawn)]
        natural = sum(map(len, labels))
        new = max(1, count // tasks)  # rows of the batch that the main heads learn from
        first = F.cross_entropy(auxiliary[:natural], torch.cat(labels))
        second = F.cross_entropy(main[:new], labels[0][:new]) / tasks
        at = natural
        if self.balanced:
            old = torch.cat([self.seen.labels(part) for part in self.balanced])
            at = natural + len(old)
            second = second + F.cross_entropy(main[natural:at], old) * (tasks - 1) / tasks
        if len(self.rows):
            first = first + self.distillation(
                auxiliary[at:], self.unlabelled["auxiliary"][self.rows]
            )
            second = second + self.distillation(main[at:], self.unlabelled["main"][self.rows])
        start = self.seen.first(batch.task)
        return first + (0.5 if tasks > 1 else 1.0) * second, main[:count, start:]

    def distillation(self, scores: Tensor, before: Tensor) -> Tensor:
        """Cross-entropy to the scores `before` over the old classes, both softened, times T²."""
        temperature = self.settings.distillation.temperature
        target = torch.softmax(before / temperature, 1)
        mine = scores[:, : before.shape[1]] / temperature
        return F.cross_entropy(mine, target) * temperature**2

    def after_step(self, batch: Batch) -> None:
        self.masks.apply(self.network().weights())

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        self.unlabelled = {}
        images, labels = task.train.images, task.train.labels
        self.memory.observe(Batch(images, labels, task.name, torch.arange(len(labels)), images))

    # Cost --------------------------------------------------------------------------------------

    def counted_step(self, batch: Batch) -> StepResult:
        before, kept = self.spent, self.masks.densities()
        share = self.account.step_share(self.network(), kept, kept)
        result = super().counted_step(batch)
        self.spent = self.account.charge(before, self.spent, share)
        return result

    @property
    def nominal_share(self) -> float:
        return self.masks.density

    def retained(self, task: str) -> int:
        """Of the network as it is now, which all tasks share."""
        return sum(int(p.count_nonzero()) for p in self.ticket(task).parameters())

    def task_facts(self, task: str) -> dict[str, Any]:
        return {"retained": self.retained(task), "flops_dense": self.account.dense_flops}

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        sizes = {name: tensor.nbytes for name, tensor in self.unlabelled.items()}
        return {
            **super().footprint(),
            "masks": self.masks.nbytes,
            "unlabelled": sizes.pop("images", 0),
            "teacher": sum(sizes.values()),
        }

    def state(self) -> State:
        parts = {
            **super().state(),
            "masks": StatePart(self.masks.tensors("layer")),
            "account": self.account.state(),
        }
        if self.unlabelled:
            parts[f"unlabelled/{self.current}"] = StatePart(self.unlabelled, fixed=True)
        return parts

    def load(self, state: State) -> None:
        super().load(state)
        self.masks = WeightMasks.load(state["masks"].tensors, "layer", self.network().weights())
        self.account.load(state["account"])
        saved = state.get(f"unlabelled/{self.current}")
        tensors = saved.tensors if saved else {}
        self.unlabelled = {name: tensor.to(self.device) for name, tensor in tensors.items()}


def smallest_removed(
    weights: Sequence[Tensor], masks: Sequence[Tensor], share: float
) -> list[Tensor]:
    """`masks` without ⌊share · left⌋ of the weights left, the smallest over all layers."""
    sizes = torch.cat([w.detach().abs().flatten() for w in weights])
    left = torch.cat([mask.flatten() for mask in masks])
    count = int(left.sum())
    kept = top_count(sizes.masked_fill(~left, -1), count - math.floor(share * count))
    parts = torch.split(kept, [weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def open_pool(name: str, shape: tuple[int, int, int]) -> UnlabelledPool:
    if name in DATASETS:
        return UnlabelledPool.of_dataset(name, shape)
    return UnlabelledPool.of_folder(Path(name), shape)
