"""How large the measured things are: as the targets have them, or tiny for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rivals.nn.network_plan import NetworkPlan, NetworkSettings

Widths = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """Networks, pictures and steps of the suites."""

    alexnet: Widths = (64, 128, 256, 2048, 2048)
    resnet: Widths = (64, 128, 256, 512, 512)
    wide: Widths = (256, 512, 1024, 2048, 2048)  # 32 rivals around the resnet's ticket
    wide_units: int = 32
    units: int = 8
    side: int = 32  # pixels
    classes: int = 10
    batch: int = 40
    images: int = 2000  # of a whole task
    epochs: int = 10
    whole_tasks: int = 3
    loop_images: int = 4500  # with the epochs, a task of the cifar100 recipe
    loop_epochs: int = 20
    save_every: float = 10.0  # seconds between checkpoints of the measured loop
    memory_steps: int = 10  # of a task, half of them competing
    stored: int = 1000  # tasks
    earlier_tasks: int = 10  # that own edges while siblings compete
    tickets: int = 20  # to infer a task among
    serve_clients: tuple[int, ...] = (1, 8, 64)
    serve_requests: int = 1000  # of so many clients
    serve_predictions: int = 10_000  # over which the server's memory is measured
    serve_burst: int = 200  # clients at once

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.side, self.side

    def plan(
        self, network: str, storage: Literal["generated", "stored"] = "generated"
    ) -> NetworkPlan:
        """`alexnet`, `resnet18` or `wide`, as networks of rivals."""
        widths = {"alexnet": self.alexnet, "resnet18": self.resnet, "wide": self.wide}[network]
        settings = NetworkSettings(
            architecture="alexnet" if network == "alexnet" else "resnet18",
            widths=widths,
            units=self.wide_units if network == "wide" else self.units,
            storage=storage,
        )
        return NetworkPlan(settings, self.shape)

    def widths(self, network: str, native: bool = False) -> Widths:
        """The full widths, or those of a ticket."""
        plan = self.plan(network).settings
        return tuple(width // (plan.units if native else 1) for width in plan.widths)


TINY = Sizes(
    alexnet=(8, 8, 8, 16, 16), resnet=(8, 8, 8, 8, 8), wide=(16, 16, 16, 16, 16), wide_units=4,
    units=2, batch=8, images=40, epochs=2, whole_tasks=1, loop_images=40, loop_epochs=2,
    memory_steps=4, stored=5, earlier_tasks=2, tickets=3, serve_clients=(1, 8), serve_requests=20,
    serve_predictions=20, serve_burst=12,
)  # fmt: skip
