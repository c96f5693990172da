"""What it takes to build a network and its twins: a name, widths, units, an input shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from rivals.errors import RivalsError
from rivals.nn.builders import NORMS, UNITS, DenseBuilder, LayerBuilder, RivalBuilder
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.rival_network import RivalNetwork
from rivals.registry import Registry
from rivals.seeds import Seed

networks: Registry[Callable[..., nn.Module]] = Registry(
    "network",
    {
        "alexnet": "rivals.nn.alexnet",
        "alexnet-table": "rivals.nn.alexnet",
        "conv-small": "rivals.nn.small",
        "lenet": "rivals.nn.lenet",
        "mlp": "rivals.nn.small",
        "resnet-small": "rivals.nn.resnet",
        "resnet18": "rivals.nn.resnet",
        "resnet18-table": "rivals.nn.resnet",
    },
)


@dataclass(frozen=True)
class NetworkSettings:
    """Which network, how wide, and how its layers are split into blocks."""

    network: str = "lenet"  # a name, or module:function for your own
    widths: tuple[int, ...] = ()  # empty: the network's own
    units: int = 8  # J, the rivals in a block
    unit: str = "relu"  # relu | linear
    norm: str = "batch"  # batch | none; both belong to the task
    initial: str = "live"  # live: for the fan that is live | glorot: for the full width
    weights: str = "generated"  # generated: what nobody claimed is made when read | held

    def __post_init__(self) -> None:
        if self.units < 1:
            raise RivalsError(f"units is {self.units}, but a block has at least 1 unit.")
        if any(width < 1 for width in self.widths):
            raise RivalsError(f"widths are {self.widths}, but a layer is at least 1 wide.")
        words = {
            "unit": UNITS, "norm": NORMS, "initial": ("live", "glorot"),
            "weights": ("generated", "held"),
        }  # fmt: skip
        for name, known in words.items():
            if getattr(self, name) not in known:
                raise RivalsError(f"{name} is '{getattr(self, name)}'; use {' or '.join(known)}.")


@dataclass(frozen=True)
class NetworkPlan:
    """Builds the network of rivals, its dense twin, and the native one of a ticket's shape."""

    settings: NetworkSettings
    input_shape: tuple[int, int, int]

    def rivals(self, seed: Seed, held: bool = False) -> RivalNetwork:
        """The network of rivals; `held` keeps in memory what could be generated."""
        s = self.settings
        kind = RivalBuilder(s.units, s.unit, s.norm, s.initial, held or s.weights == "held")
        return RivalNetwork(self.body(kind), self.input_shape, seed)

    def dense(self, seed: Seed) -> DenseNetwork:
        return self._dense(False, seed)

    def native(self, seed: Seed) -> DenseNetwork:
        return self._dense(True, seed)

    def _dense(self, native: bool, seed: Seed) -> DenseNetwork:
        s = self.settings
        return DenseNetwork(
            self.body(DenseBuilder(s.units, native, s.unit, s.norm)), self.input_shape, seed
        )

    def body(self, kind: LayerBuilder) -> nn.Module:
        name, widths = self.settings.network, self.settings.widths
        if not widths:
            return networks[name](kind)
        try:
            return networks[name](kind, widths)
        except (ValueError, TypeError) as error:
            raise RivalsError(
                f"The network '{name}' does not take the widths {widths} ({error})."
            ) from error
