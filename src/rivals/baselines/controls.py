"""The reference lines: ordinary networks trained in ordinary ways.

finetune      one network of a ticket's shape, trained on task after task: it forgets
joint         the same, trained on the data of all tasks so far, at every task or every few
independent   a network of a ticket's shape for each task, from scratch
chain         the same, each started as a copy of the one before
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field

from rivals.baselines.dense_method import DenseMethod, DenseSettings
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Examples, Task


@methods.register("finetune")
class Finetune(DenseMethod):
    """One network for all tasks, a norm and a head for each; plain SGD with momentum."""


class JointSettings(DenseSettings):
    """How often the network is trained."""

    every: int = Field(
        1,
        ge=1,
        description="Train after every so many tasks; it should divide the number of tasks.",
    )


@methods.register("joint")
class Joint(DenseMethod):
    """Keeps the training data of every task, and trains on all of it whenever a task comes.

    On a long stream that is many times the work of learning each task once. With `every`, training
    waits for several tasks; until then predictions for the waiting tasks are random.
    """

    settings: JointSettings
    settings_class = JointSettings
    trains_all_heads = True

    def __init__(self, plan: NetworkPlan, settings: JointSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.data: dict[str, Examples] = {}

    def training_set(self, task: Task) -> Sequence[Task]:
        self.data[task.name] = task.train
        if len(self.data) % self.settings.every:
            return []
        return [self.stored(name, task) for name in self.data]

    def stored(self, name: str, task: Task) -> Task:
        if name == task.name:
            return task
        known, train = self.known[name], self.data[name]
        return Task(name, known.classes, train, train, known.preprocessing)

    def footprint(self) -> dict[str, int]:
        data = sum(e.images.nbytes + e.labels.nbytes for e in self.data.values())
        return {**super().footprint(), "exemplars": data}

    def state(self) -> State:
        parts = super().state()
        for name, examples in self.data.items():
            parts[f"data/{name}"] = StatePart(
                {"images": examples.images, "labels": examples.labels}
            )
        return parts

    def load(self, state: State) -> None:
        for name, part in state.items():
            if name.startswith("data/"):
                examples = Examples(part.tensors["images"], part.tensors["labels"])
                self.data[name.removeprefix("data/")] = examples
        super().load(state)


@methods.register("independent")
class Independent(DenseMethod):
    """A network of its own for every task."""

    def network(self, task: str = "") -> DenseNetwork:
        return network_of(self, task)


@methods.register("chain")
class Chain(DenseMethod):
    """A network for every task, started as a copy of the one before."""

    def network(self, task: str = "") -> DenseNetwork:
        return network_of(self, task)

    @torch.no_grad()
    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        before = self.previous()
        if before is None:
            return
        old, new = self.networks[before], self.networks[task.name]
        for mine, theirs in zip(new.layers(), old.layers(), strict=True):
            mine.weight.copy_(theirs.weight)  # type: ignore[operator, arg-type]
            mine.norm.state(task.name).load(theirs.norm.state(before).tensors())


def network_of(method: DenseMethod, task: str) -> DenseNetwork:
    """The network of `task` alone, with a table of its own; built when first asked for."""
    if task not in method.networks:
        method.networks[task] = method.build(seed=method.seed.child("network", task))
    return method.networks[task]
