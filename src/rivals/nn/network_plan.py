"""What it takes to build a network: a name, widths, units, an input shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from rivals.errors import RivalsError
from rivals.nn.builders import DenseBuilder, LayerBuilder, RivalBuilder
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.rival_network import RivalNetwork
from rivals.nn.stem import Stem
from rivals.nn.task_state import TaskTable
from rivals.registry import Registry
from rivals.seeds import Seed
from rivals.settings import Settings

CPU = torch.device("cpu")
networks: Registry[Callable[..., nn.Module]] = Registry(
    "network",
    {
        "alexnet": "rivals.nn.alexnet",
        "alexnet-table": "rivals.nn.alexnet",
        "conv-residual": "rivals.nn.resnet",
        "conv-small": "rivals.nn.small",
        "lenet": "rivals.nn.lenet",
        "mlp": "rivals.nn.small",
        "resnet-small": "rivals.nn.resnet",
        "resnet18": "rivals.nn.resnet",
        "resnet18-table": "rivals.nn.resnet",
    },
)


class NetworkSettings(Settings):
    """Which network, how wide, and how its layers are split into blocks."""

    architecture: str = Field("lenet", description="a name, or module:function for your own")
    widths: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (), description="units of each layer; empty: those of the architecture"
    )
    units: int = Field(8, ge=1, description="rival units in a block (J)")
    activation: Literal["relu", "linear"] = Field("relu", description="linear: as in the paper")
    norm: Literal["batch", "none", "identity"] = Field(
        "batch", description="none: only a bias per task; identity: no bias either, as in Eq. 1"
    )
    init: Literal["active", "glorot"] = Field(
        "active", description="fan-in of the active units, or Glorot on the full width"
    )
    storage: Literal["generated", "stored"] = Field(
        "generated", description="generated: unclaimed weights are computed from the seed when read"
    )


@dataclass(frozen=True)
class NetworkPlan:
    """Builds the network of rivals, and the same network of ordinary layers."""

    settings: NetworkSettings
    input_shape: tuple[int, int, int]
    device: torch.device = CPU
    stem: Stem | None = None  # frozen, before the body

    def rivals(
        self, seed: Seed, stored: bool = False, tasks: TaskTable | None = None
    ) -> RivalNetwork:
        """The network of rivals; `stored` keeps in memory what could be generated."""
        s = self.settings
        kind = RivalBuilder(s.units, s.activation, s.norm, s.init, stored or s.storage == "stored")
        network = RivalNetwork(self.body(kind), self.input_shape, seed, tasks, self.stem)
        return network.to(self.device)

    def dense(self, seed: Seed, size: str = "full", tasks: TaskTable | None = None) -> DenseNetwork:
        """The same network of ordinary layers, `full` or as narrow as a `ticket`."""
        s = self.settings
        builder = DenseBuilder(s.units, size, s.activation, s.norm)
        network = DenseNetwork(self.body(builder), self.input_shape, seed, tasks, self.stem)
        return network.to(self.device)

    def body(self, build: LayerBuilder) -> nn.Module:
        name, widths = self.settings.architecture, self.settings.widths
        if not widths:
            return networks[name](build)
        try:
            return networks[name](build, widths)
        except (ValueError, TypeError) as error:
            raise RivalsError(
                f"The network '{name}' does not take the widths {widths} ({error})."
            ) from error
