"""A dense network with a head for each task: what most baselines train.

Norms belong to tasks, or all tasks share one a layer, so that all heads read the same features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.nn.dense_layers import DenseLayer
from rivals.nn.head import Head
from rivals.nn.network import Network
from rivals.nn.stem import Stem
from rivals.nn.task_norm import NormState
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed


class DenseNetwork(Network):
    """Shared weights; `add(task)` opens a norm and a head."""

    norms = "task"  # task: one for each task | shared: one for all tasks

    def __init__(
        self, body: nn.Module, input_shape: tuple[int, int, int], seed: Seed,
        tasks: TaskTable | None = None, stem: Stem | None = None,
    ) -> None:  # fmt: skip
        super().__init__(body, input_shape, seed, tasks, stem)
        if any(not isinstance(layer, DenseLayer) for layer in self.layers()):
            raise RivalsError(
                "This network is built of rival layers by hand, so it has no dense version; "
                "take its layers from the builder (build.conv, build.linear) instead."
            )

    def add(self, task: str, classes: int, ancestor: str | None = None) -> None:
        """Open `task`; its norm starts as that of `ancestor`, or is the one that all share."""
        first = next(iter(self.heads), None)
        self.add_head(task, classes)
        for layer in self.layers():
            assert isinstance(layer, DenseLayer)
            if self.norms == "shared" and first is not None:
                layer.norm.tasks[task] = layer.norm.state(first)
            else:
                layer.norm.begin(task, layer.width, ancestor, self.device)

    def weights(self) -> list[nn.Parameter]:
        return [layer.weight for layer in self.layers() if isinstance(layer, DenseLayer)]

    def shared_parameters(self) -> list[Tensor]:
        norms = self.shared_norms().values()
        return [*self.weights(), *(tensor for norm in norms for tensor in norm.parameters())]

    def shared_norms(self) -> dict[str, NormState]:
        """The norms of all tasks, by name; none where each task has its own."""
        if self.norms == "task" or not self.heads:
            return {}
        return self.norms_of(next(iter(self.heads)))

    def norms_of(self, task: str) -> dict[str, NormState]:
        layers = enumerate(self.layers())
        return {f"layer{number}.norm": layer.norm.state(task) for number, layer in layers}

    def own(self, task: str) -> dict[str, NormState | Head]:
        """What belongs to one task, by name: its norms, unless all share them, and its head."""
        norms = self.norms_of(task) if self.norms == "task" else {}
        return {**norms, "head": self.heads[task]}

    def task_parameters(self, task: str) -> list[Tensor]:
        return [tensor for part in self.own(task).values() for tensor in part.parameters()]

    def all_parameters(self) -> list[Tensor]:
        """What is shared, then what belongs to each task."""
        own = [tensor for task in self.heads for tensor in self.task_parameters(task)]
        return [*self.shared_parameters(), *own]

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to store."""
        found = {f"layer{i}": w.detach() for i, w in enumerate(self.weights())}
        for name, norm in self.shared_norms().items():
            found |= {f"{name}.{key}": t for key, t in norm.tensors().items()}
        for task in self.heads:
            for name, part in self.own(task).items():
                found |= {f"{task}/{name}.{key}": t for key, t in part.tensors().items()}
        return found

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave, the same tasks having been added."""
        for number, weight in enumerate(self.weights()):
            weight.copy_(tensors[f"layer{number}"])
        for name, norm in self.shared_norms().items():
            norm.load({key: tensors[f"{name}.{key}"] for key in norm.tensors()})
        for task in self.heads:
            for name, part in self.own(task).items():
                prefix = f"{task}/{name}."
                part.load({key: tensors[f"{prefix}{key}"] for key in part.tensors()})
