"""The reference lines: ordinary networks trained in ordinary ways.

finetune      one network of a ticket's shape, trained on task after task: it forgets
joint         the same, trained on the data of all tasks so far, at every task or every few
independent   a network of a ticket's shape for each task, from scratch
chain         the same, each started as a copy of the one before
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, fx

from rivals.errors import RivalsError
from rivals.learn.method import Method, methods
from rivals.learn.state import State, StatePart, load_optimiser, optimiser_tensors
from rivals.learn.training_settings import TrainingSettings
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from rivals.streams.task import Batch, Examples, Task


class DenseSettings(TrainingSettings):
    """Which network is trained."""

    width: Literal["ticket", "dense"] = Field(
        "ticket", description="ticket: as narrow as a ticket; dense: the full width"
    )
    norms: Literal["task", "shared"] = Field(
        "task", description="task: a norm for each task; shared: one for all tasks"
    )


@methods.register("finetune")
class Finetune(Method):
    """One network for all tasks, a norm and a head for each; plain SGD with momentum."""

    settings: DenseSettings
    settings_class = DenseSettings

    def __init__(self, plan: NetworkPlan, settings: DenseSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.networks: dict[str, DenseNetwork] = {}
        self.optimiser: torch.optim.Optimizer | None = None
        self.current = ""
        # A network that cannot be built, or be cut into tickets, is refused before any work.
        self.build("trial")
        self.plan.dense(seed, "ticket")

    def build(self, task: str, tasks: TaskTable | None = None) -> DenseNetwork:
        """An untrained network for `task`; it keeps the states of tasks in `tasks`."""
        return self.fresh(self.seed.child("network"), tasks)

    def fresh(self, seed: Seed, tasks: TaskTable | None = None) -> DenseNetwork:
        network = self.plan.dense(seed, self.settings.width, tasks)
        network.norms = self.settings.norms
        return network

    def network(self, task: str) -> DenseNetwork:
        """The network that serves `task`; here always the same one."""
        if "shared" not in self.networks:
            self.networks["shared"] = self.build("shared", self.tasks)
        return self.networks["shared"]

    def previous(self) -> str | None:
        return next((task for task in reversed(self.known) if task != self.current), None)

    def begin_task(self, task: Task) -> None:
        self.current = task.name
        self.network(task.name).add(task.name, len(task.classes), self.previous())
        self.prepare()

    def trained(self) -> list[Tensor]:
        network = self.network(self.current)
        return [*network.shared_parameters(), *network.task_parameters(self.current)]

    def prepare(self) -> None:
        s = self.settings
        self.optimiser = torch.optim.SGD(
            self.trained(), lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay
        )

    def train_logits(self, batch: Batch) -> Tensor:
        scores: Tensor = self.network(batch.task).learning(True)(batch.images, batch.task)
        return scores

    def rate(self) -> float:
        """The learning rate of this step: from lr to 0 over the task."""
        return self.settings.lr * (1 - self.position.step / self.position.steps)

    def update(self) -> None:
        assert self.optimiser is not None
        self.optimiser.param_groups[0]["lr"] = self.rate()
        self.optimiser.step()
        self.optimiser.zero_grad()

    def working_tensors(self) -> list[Tensor]:
        norms = self.network(self.current).norms_of(self.current).values()
        return [*self.trained(), *(tensor for norm in norms for tensor in (norm.mean, norm.var))]

    def end_task(self, task: Task) -> None:
        self.current, self.optimiser = "", None

    def logits(self, images: Tensor, task: str) -> Tensor:
        scores: Tensor = self.network(task).learning(False)(images, task)
        return scores

    def ticket(self, task: str) -> fx.GraphModule:
        return self.network(task).cut(task)

    def full_weights(self) -> int:
        return sum(p.numel() for p in self.ticket(next(iter(self.known))).parameters())

    def footprint(self) -> dict[str, int]:
        tensors = [t for network in self.networks.values() for t in network.tensors().values()]
        return {"weights": sum(t.nbytes for t in tensors), "tasks": self.kept_bytes()}

    def state(self) -> State:
        common = self.common_part()
        common.facts["current"] = self.current
        parts: State = {"common": common}
        for name, network in self.networks.items():
            parts[f"network/{name}"] = StatePart(network.tensors())
        if self.optimiser is not None:
            parts["working"] = StatePart(optimiser_tensors(self.optimiser, "optimiser"))
        return parts

    def load(self, state: State) -> None:
        self.load_common(state["common"])
        self.current = state["common"].facts["current"]
        for task, known in self.known.items():
            self.network(task).add(task, len(known.classes))
        for name, network in self.networks.items():
            network.load(state[f"network/{name}"].tensors)
        if self.current:
            self.prepare()
            assert self.optimiser is not None
            load_optimiser(self.optimiser, state["working"].tensors, "optimiser")


class JointSettings(DenseSettings):
    """How often everything is trained on."""

    every: int = Field(
        1, description="tasks from one training to the next; should divide the number of tasks"
    )

    def check(self) -> None:
        super().check()
        if self.every < 1:
            raise RivalsError(f"every is {self.every}, but must be at least 1.")


@methods.register("joint")
class Joint(Finetune):
    """Keeps the training data of every task, and trains on all of it whenever a task comes.

    On a long stream that is many times the work of learning each task once; `every` waits for so
    many tasks, and answers about those it has not trained on by chance.
    """

    settings: JointSettings
    settings_class = JointSettings

    def __init__(self, plan: NetworkPlan, settings: Any, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.kept: dict[str, Examples] = {}

    def training_set(self, task: Task) -> Sequence[Task]:
        self.kept[task.name] = task.train
        if len(self.kept) % self.settings.every:
            return []
        return [self.remembered(name, task) for name in self.kept]

    def remembered(self, name: str, task: Task) -> Task:
        if name == task.name:
            return task
        known, train = self.known[name], self.kept[name]
        return Task(name, known.classes, train, train, known.preprocessing)

    def trained(self) -> list[Tensor]:
        return self.network(self.current).all_parameters()

    def footprint(self) -> dict[str, int]:
        data = sum(e.images.nbytes + e.labels.nbytes for e in self.kept.values())
        return {**super().footprint(), "exemplars": data}

    def state(self) -> State:
        parts = super().state()
        for name, examples in self.kept.items():
            parts[f"data/{name}"] = StatePart(
                {"images": examples.images, "labels": examples.labels}
            )
        return parts

    def load(self, state: State) -> None:
        for name, part in state.items():
            if name.startswith("data/"):
                examples = Examples(part.tensors["images"], part.tensors["labels"])
                self.kept[name.removeprefix("data/")] = examples
        super().load(state)


@methods.register("independent")
class Independent(Finetune):
    """A network of its own for every task."""

    def network(self, task: str) -> DenseNetwork:
        if task not in self.networks:
            self.networks[task] = self.build(task)
        return self.networks[task]

    def build(self, task: str, tasks: TaskTable | None = None) -> DenseNetwork:
        return self.fresh(self.seed.child("network", task), tasks)

    def begin_task(self, task: Task) -> None:
        self.current = task.name
        self.network(task.name).add(task.name, len(task.classes))
        self.prepare()


@methods.register("chain")
class Chain(Independent):
    """A network for every task, started as a copy of the one before."""

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        before = self.previous()
        if before is None:
            return
        old, new = self.networks[before], self.networks[task.name]
        with torch.no_grad():
            for mine, theirs in zip(new.layers(), old.layers(), strict=True):
                mine.weight.copy_(theirs.weight)  # type: ignore[operator, arg-type]
                mine.norm.state(task.name).load(theirs.norm.state(before).tensors())
