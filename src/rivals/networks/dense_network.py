"""A dense network with a norm and a head for each task: the twin that reference methods train."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.layers import DenseLayer, Head
from rivals.layers.norm import NormState
from rivals.networks.network import Network
from rivals.seeds import Seed


class DenseNetwork(Network):
    """Shared weights; `add(task)` opens a norm and a head."""

    def __init__(self, body: nn.Module, input_shape: tuple[int, int, int], seed: Seed) -> None:
        super().__init__(body, input_shape, seed)
        if any(not isinstance(layer, DenseLayer) for layer in self.layers()):
            raise RivalsError(
                "This network is built of rival layers by hand, so it has no dense twin; "
                "ask the kind for its layers (kind.conv, kind.linear) instead."
            )

    def add(self, task: str, classes: int, ancestor: str | None = None) -> None:
        """Open `task`; its norm starts as that of `ancestor`."""
        self.add_head(task, classes)
        for layer in self.layers():
            assert isinstance(layer, DenseLayer)
            layer.norm.begin(task, layer.width, ancestor)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [layer.weight for layer in self.layers() if isinstance(layer, DenseLayer)]

    def own(self, task: str) -> dict[str, NormState | Head]:
        """What belongs to one task, by name: its norms and its head."""
        layers = enumerate(self.layers())
        norms = {f"layer{number}.norm": layer.norm.state(task) for number, layer in layers}
        return {**norms, "head": self.heads[task]}

    def task_parameters(self, task: str) -> list[Tensor]:
        return [tensor for part in self.own(task).values() for tensor in part.parameters()]

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to store."""
        found = {f"layer{i}": w.detach() for i, w in enumerate(self.shared_parameters())}
        for task in self.heads.tasks:
            for name, part in self.own(task).items():
                found |= {f"{task}/{name}.{key}": t for key, t in part.tensors().items()}
        return found

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave, the same tasks having been added."""
        for number, weight in enumerate(self.shared_parameters()):
            weight.copy_(tensors[f"layer{number}"])
        for task in self.heads.tasks:
            for name, part in self.own(task).items():
                prefix = f"{task}/{name}."
                part.load({key: tensors[f"{prefix}{key}"] for key in part.tensors()})
