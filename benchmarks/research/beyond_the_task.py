"""TWTA that may look beyond the images of its task, for the question `beyond`.

`Rehearsing` keeps a few images of every class. In each step the ticket also tells as many of these
apart, among all classes before, by a second head that is thrown away when the task ends.

`Pretext` begins the line of descent with pictures nobody labelled: before its first task the ticket
learns which way they are up, turned by a quarter, a half, three quarters or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import Budget
from rivals.baselines.memory.pool import UnlabelledPool
from rivals.learn.method import StepResult
from rivals.learn.state import State, StatePart
from rivals.learn.twta import TWTA
from rivals.learn.twta_settings import TWTASettings
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.augment import augment
from rivals.streams.task import Batch, Task

TURNS = 4


@dataclass(frozen=True)
class RehearsingSettings(TWTASettings):
    """How much is kept."""

    kept: int = 10  # images of each class


class Rehearsing(TWTA):
    """TWTA with a memory of exemplars."""

    settings: RehearsingSettings
    settings_class = RehearsingSettings

    def __init__(self, plan: NetworkPlan, settings: RehearsingSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        budget = Budget(per_class=settings.kept)
        self.memory = ExemplarMemory(budget, "reservoir", seed.child("memory"))
        self.second = torch.empty(0)  # the head that is thrown away: (classes before, features)

    def begin_task(self, task: Task) -> None:
        before = sum(len(known.classes) for known in self.known.values())
        features = self.network.end.blocks if self.network.end else self.network.features
        generator = self.seed.child("second", task.name).torch()
        noise = torch.randn(before, features, generator=generator)
        self.second = (noise / features**0.5).requires_grad_()
        super().begin_task(task)
        self.memory.begin(task)

    def prepare_settled(self) -> None:
        super().prepare_settled()
        if len(self.second):
            self.optimisers[0].add_param_group({"params": [self.second]})

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if not len(self.second):
            return super().loss(batch)
        seed = self.seed.child("replay", batch.task, self.position.step)
        images, labels = [], []
        sizes = torch.tensor([0, *(len(known.classes) for known in self.known.values())])
        firsts = dict(zip(self.known, sizes.cumsum(0).tolist(), strict=False))
        for part in self.memory.sample(len(batch.labels), seed, without=batch.task):
            generator = seed.child(part.task).torch()
            moved = augment(part.raw, self.settings.augmentation, generator)
            images.append(self.known[part.task].preprocessing(moved))
            labels.append(part.labels + firsts[part.task])
        network = self.network.learning(True)
        flow = network.flow(torch.cat(images), batch.task, self.selection)
        replayed = F.cross_entropy(F.linear(flow.values, self.second), torch.cat(labels))
        own, scores = super().loss(batch)
        return own + replayed, scores

    def step(self, batch: Batch) -> StepResult:
        """The learning rate of the head that is thrown away falls like the others'."""
        for group in self.optimisers[0].param_groups:
            group["lr"] = self.settings.lr * (1 - self.position.step / self.position.steps)
        return super().step(batch)

    def after_step(self, batch: Batch) -> None:
        if self.position.epoch == 0:
            self.memory.observe(batch)

    def end_task(self, task: Task) -> None:
        for layer in self.network.layers():  # of the task's images alone
            layer.norm.state(task.name).forget_statistics()
        self.estimate_norms(task)
        super().end_task(task)

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "exemplars": sum(self.memory.bytes().values())}

    def state(self) -> State:
        second = StatePart({"head": self.second.detach()})
        return {**super().state(), "second": second, "memory": self.memory.state()}

    def load(self, state: State) -> None:
        self.second = state["second"].tensors["head"].requires_grad_()
        super().load(state)
        self.memory.load(state["memory"])


@dataclass(frozen=True)
class PretextSettings(TWTASettings):
    """Which pictures, and how long."""

    pool: str = "tiny-imagenet"
    pretext_epochs: int = 5
    pretext_batch: int = 50


class Pretext(TWTA):
    """TWTA whose first ticket does not start from nothing."""

    settings: PretextSettings
    settings_class = PretextSettings

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if not self.known:
            pool = UnlabelledPool.of_dataset(self.settings.pool, self.plan.input_shape)
            self.learn_what_is_up(task, pool)
            self.prepare_settled()  # with fresh buffers

    def learn_what_is_up(self, task: Task, pool: UnlabelledPool) -> None:
        s, network = self.settings, self.network.learning(True)
        head = nn.Linear(network.end.blocks if network.end else network.features, TURNS)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        parameters = [*(part.leaf for part in self.slices()), *self.norms(), *head.parameters()]
        optimiser = torch.optim.SGD(parameters, s.lr, s.momentum, weight_decay=s.weight_decay)
        step, steps = 0, s.pretext_epochs * -(-len(pool) // s.pretext_batch)
        for number in range(s.pretext_epochs):
            generator = self.seed.child("pretext", number).torch()
            order = torch.randperm(len(pool), generator=generator)
            for index in torch.split(order, s.pretext_batch):
                images = augment(pool.take(index), s.augmentation, generator)
                turns = torch.randint(TURNS, (len(index),), generator=generator)
                inputs = task.preprocessing(turned(images, turns.tolist()))
                optimiser.param_groups[0]["lr"] = s.lr * (1 - step / steps)
                with self.charged():
                    flow = network.flow(inputs, task.name, self.selection)
                    F.cross_entropy(head(flow.values), turns).backward()
                optimiser.step()
                optimiser.zero_grad()
                step += 1
        for layer in network.layers():
            layer.norm.state(task.name).forget_statistics()

    def norms(self) -> list[Tensor]:
        layers = self.network.layers()
        return [each for layer in layers for each in layer.norm.state(self.current).parameters()]


def turned(images: Tensor, turns: Sequence[int]) -> Tensor:
    """Each image turned by so many quarters."""
    return torch.stack(
        [image.rot90(turn, (1, 2)) for image, turn in zip(images, turns, strict=True)]
    )
