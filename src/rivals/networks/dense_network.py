"""A dense network with a norm and a head for each task: the twin that reference methods train."""

from __future__ import annotations

from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.layers import DenseLayer
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

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        norms = (layer.norm.state(task) for layer in self.layers())
        own = [p for state in norms for p in state.parameters()]
        return [*own, *self.heads[task].parameters()]

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is to store."""
        return dict(self.state_dict())
