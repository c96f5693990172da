"""LLT: Lifelong Lottery Tickets (Chen et al. 2021), top-down. One sparse network for all tasks.

A class-incremental learner with exemplars, two heads a task, and distillation:

    loss = CE_auxiliary + KD_auxiliary + 0.5 · (CE_main + KD_main)

auxiliary   new images and exemplars as they come; main: as many of each task, used to predict
KD          both heads stay near what the network said before the task, on unlabelled pictures

Top-down: after a task the network is pruned `rounds` times, each time by 20 % of the weights left,
the smallest of all layers, and retrained for a while. The next task starts from the initial values
of the weights that are left. 1 + 1 + 2 + 3 + 5 rounds leave 0.8¹² = 6.87 %; after as many tasks as
`rounds` has numbers, no more is pruned, so the schedule serves for any number of tasks.

Unlabelled pictures are the neighbours of the exemplars in a `pool` (a data set, or a folder); with
`pool: none`, exemplars and the task's own images. The ticket is the dense network with zeros in it;
`retained` counts the others, `flops` charge by density and `flops_dense` do not.

Deviations from the official code
- Only the top-down schedule; bottom-up decides by test accuracy, over twice as many rounds.
- Retraining follows every pruning, so what is measured and shipped is the sparse network.
- All layers but the heads are pruned; there all convolutions, of a network that has no others.
- One forward pass for all parts of a step; the step size falls to 0 in a line before pruning.
- 80 Million Tiny Images, its pool, was withdrawn; so there is none by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.baselines.llt_settings import DATASETS, LLTSettings
from rivals.baselines.masks import pack, top_count, unpack
from rivals.baselines.memory.exemplar import Replay
from rivals.baselines.memory.pool import UnlabelledPool
from rivals.baselines.rehearsal import Rehearsal
from rivals.baselines.sparse_accounting import ByDensity, share_left
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.builders import DenseBuilder
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task

BATCH = 256  # images at a time, outside of steps


class TwoHeaded(DenseNetwork):
    """A main and an auxiliary head for each task, on one norm."""

    norms = "shared"

    def add(self, task: str, classes: int, ancestor: str | None = None) -> None:
        super().add(task, classes, ancestor)
        self.add_head(auxiliary(task), classes)


@methods.register("llt")
class LLT(ByDensity, Rehearsal):
    """Replay and distillation in a network that is pruned from task to task."""

    settings: LLTSettings
    settings_class = LLTSettings

    def __init__(self, plan: NetworkPlan, settings: LLTSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.masks: list[Tensor] = []  # layer by layer; empty before the first pruning
        self.held: dict[str, Tensor] = {}  # images (n, …), main and auxiliary scores (n, classes)
        self.drawn: list[Replay] = []  # for the auxiliary heads
        self.balanced: list[Replay] = []  # for the main heads
        self.rows = torch.empty(0, dtype=torch.int64)  # of `held`

    def fresh(self, seed: Seed, tasks: TaskTable | None = None) -> DenseNetwork:
        s, plan = self.settings, self.plan.settings
        kind = DenseBuilder(plan.units, s.width, plan.activation, plan.norm)
        body = self.plan.body(kind)
        network = TwoHeaded(body, self.plan.input_shape, seed, tasks)
        return network.to(self.device)

    # Rounds of pruning -------------------------------------------------------------------------

    def rounds(self) -> int:
        """Prunings in the present task."""
        before = sum(task != self.current for task in self.known)
        planned = self.settings.rounds if self.settings.prune == "top-down" else ()
        return planned[before] if before < len(planned) else 0

    def retrain_epochs(self) -> int:
        return max(1, round(self.settings.retrain * self.settings.epochs))

    def planned_epochs(self) -> int:
        return self.settings.epochs + self.rounds() * self.retrain_epochs()

    def end_epoch(self, task: Task) -> None:
        done = self.position.epoch + 1 - self.settings.epochs
        if 0 <= done < self.rounds() * self.retrain_epochs() and done % self.retrain_epochs() == 0:
            weights = self.network(task.name).weights()
            masks = self.masks or [torch.ones_like(w, dtype=torch.bool) for w in weights]
            self.masks = smallest_removed(weights, masks, self.settings.prune_share)
            self.apply_masks()

    @torch.no_grad()
    def apply_masks(self) -> None:
        for weight, mask in zip(self.network("shared").weights(), self.masks, strict=False):
            weight.mul_(mask)

    def rate(self) -> float:
        """In a line to 0 over the epochs before pruning, then small."""
        s, at = self.settings, self.position
        if at.epoch >= s.epochs:
            return s.lr * s.retrain_lr
        return s.lr * (1 - at.step / (at.steps * s.epochs / self.planned_epochs()))

    # A task ------------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        old = list(self.known)
        if old and self.settings.distil:
            with self.charged():
                self.held = self.unlabelled(task, old)
        super().begin_task(task)
        if self.masks and self.settings.rewind == "initial":
            initial = self.build("initial").weights()  # a function of the seed, not stored
            with torch.no_grad():
                for weight, first in zip(self.network("shared").weights(), initial, strict=True):
                    weight.copy_(first)
        self.apply_masks()

    @torch.no_grad()
    def unlabelled(self, task: Task, old: Sequence[str]) -> dict[str, Tensor]:
        """Pictures without labels, and what both heads of the old tasks say of them now."""
        s, kept = (
            self.settings,
            torch.cat([self.memory.all(name).raw for name in self.memory.tasks()]),
        )
        if s.pool == "none":
            images = torch.cat([kept, task.train.images])
        else:
            pool = open_pool(s.pool, self.plan.input_shape)
            near = pool.nearest(kept, partial(self.features, task=old[-1]), s.neighbours)
            images = pool.take(near.index)
        chance = self.seed.child("unlabelled", task.name).torch()
        images = images[torch.randperm(len(images), generator=chance)[: s.unlabelled]]
        network = self.network("shared").learning(False)
        flows = [network.flow(task.preprocessing(i), old[0]) for i in torch.split(images, BATCH)]
        heads = {"main": list(old), "auxiliary": [auxiliary(name) for name in old]}
        scores = {
            kind: torch.cat([torch.cat([network.heads[h](f) for h in hs], 1) for f in flows])
            for kind, hs in heads.items()
        }
        return {"images": images, **scores}

    def before_step(self, batch: Batch) -> None:
        """Draw exemplars in the proportion there is of them, then as many of each task."""
        seed = self.seed.child("replay", batch.task, self.position.step)
        count, tasks = len(batch.labels), len(self.known)
        self.drawn, self.balanced, self.rows = [], [], self.rows[:0]
        if tasks == 1:
            return
        epoch = self.position.steps / self.planned_epochs()  # in steps
        natural = max(1, round(len(self.memory) / epoch))
        self.drawn = self.memory.sample(natural, seed.child("auxiliary"))
        self.balanced = self.memory.sample(max(1, count - count // tasks), seed.child("main"))
        if self.held:
            chance = seed.child("unlabelled").torch()
            self.rows = torch.randint(len(self.held["images"]), (count,), generator=chance)

    @property
    def phase(self) -> str:
        parts = sum(len(p.labels) for p in self.drawn), sum(len(p.labels) for p in self.balanced)
        return "with {} + {} exemplars and {} pictures".format(*parts, len(self.rows))

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        tasks, count = len(self.known), len(batch.labels)
        images = [batch.images, *(part.images for part in (*self.drawn, *self.balanced))]
        if len(self.rows):
            look = self.known[batch.task].preprocessing
            images.append(look(self.held["images"][self.rows]))
        main, other = self.both_scores(torch.cat(images))
        labels = [self.numbered(part) for part in (batch, *self.drawn)]
        natural = sum(map(len, labels))
        new = max(1, count // tasks)  # rows of the batch that the main heads learn from
        first = F.cross_entropy(other[:natural], torch.cat(labels))
        second = F.cross_entropy(main[:new], labels[0][:new]) / tasks
        at = natural
        if self.balanced:
            old = torch.cat([self.numbered(part) for part in self.balanced])
            at = natural + len(old)
            second = second + F.cross_entropy(main[natural:at], old) * (tasks - 1) / tasks
        if len(self.rows):
            first = first + self.distance(other[at:], self.held["auxiliary"][self.rows])
            second = second + self.distance(main[at:], self.held["main"][self.rows])
        start = self.first_class(batch.task)
        return first + (0.5 if tasks > 1 else 1.0) * second, main[:count, start:]

    def both_scores(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of all classes seen by the main and by the auxiliary heads, with gradients."""
        network, tasks = self.network("shared").learning(True), list(self.known)
        flow = network.flow(images, tasks[0])
        main = torch.cat([network.heads[task](flow) for task in tasks], 1)
        return main, torch.cat([network.heads[auxiliary(task)](flow) for task in tasks], 1)

    def numbered(self, part: Batch) -> Tensor:
        """Labels among all classes seen."""
        return part.labels + self.first_class(part.task)

    def distance(self, scores: Tensor, before: Tensor) -> Tensor:
        """Cross-entropy to the old scores over the old classes, both softened, times T²."""
        soft = self.settings.temperature
        target = torch.softmax(before / soft, 1)
        return F.cross_entropy(scores[:, : before.shape[1]] / soft, target) * soft**2

    def after_step(self, batch: Batch) -> None:
        self.apply_masks()

    def end_task(self, task: Task) -> None:
        super().end_task(task)
        self.held = {}
        images, labels = task.train.images, task.train.labels
        self.memory.observe(Batch(images, labels, task.name, torch.arange(len(labels)), images))

    # Account -----------------------------------------------------------------------------------

    def densities(self) -> tuple[list[float], list[float]]:
        left = [share_left(mask) for mask in self.masks]
        return left, left

    @property
    def nominal_share(self) -> float:
        return share_left(torch.cat([mask.flatten() for mask in self.masks])) if self.masks else 1.0

    def footprint(self) -> dict[str, int]:
        held = {name: tensor.nbytes for name, tensor in self.held.items()}
        return {
            **super().footprint(),
            "masks": sum(pack(mask).nbytes for mask in self.masks),
            "unlabelled": held.pop("images", 0),
            "teacher": sum(held.values()),
        }

    def state(self) -> State:
        masks = {f"layer{i}": pack(mask) for i, mask in enumerate(self.masks)}
        parts = {**super().state(), "masks": StatePart(masks)}
        if self.held:
            parts[f"unlabelled/{self.current}"] = StatePart(self.held, fixed=True)
        return parts

    def load(self, state: State) -> None:
        super().load(state)
        packed = state["masks"].tensors
        weights = enumerate(self.network("shared").weights())
        self.masks = [unpack(packed[f"layer{i}"], w) for i, w in weights] if packed else []
        unlabelled = state.get(f"unlabelled/{self.current}")
        self.held = unlabelled.tensors if unlabelled else {}


def auxiliary(task: str) -> str:
    """The name of a task's other head."""
    return f"{task} (auxiliary)"


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
