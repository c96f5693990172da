"""The base of all baselines: a network of ordinary layers, trained by SGD.

A method derives from `DenseMethod` and overrides the steps of the contract that it changes. What
several methods need are members that a method may have:

    memory    exemplars of earlier tasks (`ExemplarMemory`): started, counted and saved here
    seen      the classes of all tasks as one problem (`SeenClasses`): asked when no task is given
    parity    switches towards the official code (`ParitySettings`)
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from pydantic.fields import FieldInfo
from torch import Tensor, fx

from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.official_switches import (
    ParitySettings,
    copied_statistics,
    share_between_tasks,
)
from rivals.baselines.seen_classes import SeenClasses
from rivals.errors import RivalsError
from rivals.learn.method import Method
from rivals.learn.state import State, StatePart, load_optimiser, optimiser_tensors
from rivals.learn.training_settings import TrainingSettings
from rivals.naming.task_record import Prediction
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.optimisers import SGD
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.task import Batch, Task


class DenseSettings(TrainingSettings):
    """Which network is trained."""

    network_size: Literal["ticket", "full"] = Field(
        "ticket", description="Layers as narrow as those of a ticket, or of the full width."
    )
    shared_norms: bool = Field(
        False, description="All tasks share one norm per layer, instead of one for each task."
    )

    def need_shared_norms(self, reason: str) -> None:
        """Refuse one norm per task where classes of all tasks compete."""
        if not self.shared_norms:
            raise RivalsError(f"shared_norms is false, but {reason}; use shared_norms=true.")

    def need_task_norms(self, reason: str) -> None:
        """Refuse a norm that all tasks share."""
        if self.shared_norms:
            raise RivalsError(f"shared_norms is true, but {reason}; use shared_norms=false.")


def default(model: type[Settings], name: str, value: Any) -> Any:
    """The field `name` of `model` with another default; its range and description stay."""
    return FieldInfo.merge_field_infos(model.model_fields[name], default=value)


class DenseMethod(Method):
    """One network for all tasks, with a norm and a head for each; SGD with momentum."""

    settings: DenseSettings
    settings_class = DenseSettings
    trains_all_heads = False  # or only that of the present task

    memory: ExemplarMemory | None = None
    seen: SeenClasses | None = None
    parity = ParitySettings()

    def __init__(self, plan: NetworkPlan, settings: Any, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.networks: dict[str, DenseNetwork] = {}
        self.optimizer: torch.optim.Optimizer | None = None
        self.current = ""  # the task that is being learned
        # A network that cannot be built, or be cut into tickets, is refused before training.
        self.build()
        self.plan.dense(seed, "ticket")

    # The network -------------------------------------------------------------------------------

    def build(self, tasks: TaskTable | None = None, seed: Seed | None = None) -> DenseNetwork:
        """An untrained network that keeps the states of tasks in `tasks`."""
        seed = seed or self.seed.child("network")
        network = self.plan.dense(seed, self.settings.network_size, tasks)
        network.norms = "shared" if self.settings.shared_norms else "task"
        return network

    def network(self, task: str = "") -> DenseNetwork:
        """The network that serves `task`; here the same for all tasks."""
        if "shared" not in self.networks:
            self.networks["shared"] = self.build(self.tasks)
        return self.networks["shared"]

    def previous(self) -> str | None:
        """The task before the present one."""
        return next((task for task in reversed(self.known) if task != self.current), None)

    # Training ----------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        self.current = task.name
        network, before = self.network(task.name), self.previous()
        network.add(task.name, len(task.classes), before if before in network.heads else None)
        self.prepare()
        if self.memory is not None:
            self.memory.begin(task)

    def prepare(self) -> None:
        """What training of the present task needs, at its start and after loading."""
        self.share()
        self.optimizer = self.make_optimizer()

    def share(self) -> None:
        for network in self.networks.values():
            share_between_tasks(network, self.parity)

    def make_optimizer(self) -> torch.optim.Optimizer:
        s = self.settings
        return SGD(self.trained(), lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay)

    def trained(self) -> list[Tensor]:
        """The parameters that training of the present task changes."""
        network = self.network(self.current)
        if self.trains_all_heads:
            return network.all_parameters()
        return [*network.shared_parameters(), *network.task_parameters(self.current)]

    def train_logits(self, batch: Batch) -> Tensor:
        scores: Tensor = self.network(batch.task).learning(True)(batch.images, batch.task)
        return scores

    def rate(self) -> float:
        """The learning rate of this step."""
        if self.parity.lr_schedule == "constant":
            return self.settings.lr
        return self.settings.lr * (1 - self.position.step / self.position.steps)

    def step_facts(self) -> dict[str, float]:
        return {} if self.optimizer is None else {"lr": self.optimizer.param_groups[0]["lr"]}

    def update(self) -> None:
        assert self.optimizer is not None
        self.optimizer.param_groups[0]["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def working_tensors(self) -> list[Tensor]:
        norms = self.network(self.current).norms_of(self.current).values()
        return [*self.trained(), *(tensor for norm in norms for tensor in (norm.mean, norm.var))]

    def end_task(self, task: Task) -> None:
        self.current, self.optimizer = "", None

    # Inference ---------------------------------------------------------------------------------

    def logits(self, images: Tensor, task: str) -> Tensor:
        network = self.network(task)
        scores: Tensor
        if self.parity.eval_statistics == "batch":
            with copied_statistics(network, task):  # tickets have running statistics all the same
                scores = network.learning(True)(images, task)
        else:
            scores = network.learning(False)(images, task)
        return scores

    def predict(self, images: Tensor, task: str | None) -> Prediction:
        """Without a task, the classes of all tasks compete, if the method learns them so."""
        if task is None and self.seen is not None:
            return self.seen.predict(images.to(self.device))
        return super().predict(images, task)

    @property
    def one_classifier(self) -> bool:
        return self.seen is not None

    def ticket(self, task: str) -> fx.GraphModule:
        return self.network(task).cut(task)

    def full_weights(self) -> int:
        return sum(p.numel() for p in self.ticket(next(iter(self.known))).parameters())

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        tensors = [t for network in self.networks.values() for t in network.tensors().values()]
        weights = {tensor.data_ptr(): tensor.nbytes for tensor in tensors}  # shared ones count once
        found = {"weights": sum(weights.values()), "tasks": self.kept_bytes()}
        if self.memory is not None:
            found["exemplars"] = sum(self.memory.bytes().values())
        return found

    def state(self) -> State:
        common = self.common_part()
        common.facts["current"] = self.current
        parts: State = {"common": common}
        for name, network in self.networks.items():
            parts[f"network/{name}"] = StatePart(network.tensors())
        if self.optimizer is not None:
            parts["working"] = StatePart(optimiser_tensors(self.optimizer, "optimiser"))
        if self.memory is not None:
            parts["memory"] = self.memory.state()
        return parts

    def load(self, state: State) -> None:
        self.load_common(state["common"])
        self.current = state["common"].facts["current"]
        for task, known in self.known.items():
            self.network(task).add(task, len(known.classes))
        for name, network in self.networks.items():
            network.load(state[f"network/{name}"].tensors)
        self.share()
        if self.current:
            self.prepare()
            assert self.optimizer is not None
            load_optimiser(self.optimizer, state["working"].tensors, "optimiser")
        if self.memory is not None:
            self.memory.load(state["memory"])
