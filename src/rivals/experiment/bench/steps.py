"""Steps of a method held in one phase, so that they can be timed one by one."""

from __future__ import annotations

from typing import Any

from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.bench_stored import store
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.plain_networks import LAYOUTS, NETWORKS, PlainTraining
from rivals.learn.method import Method, methods
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.batching import epoch
from rivals.streams.task import Batch, Task

MANY = 1_000_000  # steps of a task that never ends, so that no phase does
PHASES: dict[str, dict[str, Any]] = {
    "settled": {"share": 0.0},
    "competing": {"share": 1.0, "gating": "sparse", "contenders": 2},
    "siblings": {"share": 1.0, "gating": "siblings", "contenders": 0},
    "relaxed": {"share": 1.0, "gating": "relaxed", "contenders": 0},
}


def method_of(plan: NetworkPlan, name: str = "twta", **settings: Any) -> Method:
    """A fresh method with default settings but for those given."""
    cls = methods[name]
    return cls(plan, cls.settings_class.from_paths(settings), Seed(0))


def first_batch(task: Task, size: int) -> Batch:
    """A batch of a task, prepared."""
    return next(epoch([task], methods["twta"].settings_class(batch_size=size).batching, Seed(0)))


class PhaseSteps:
    """One step after the other in one phase: `settled`, `competing` (one active unit), `siblings`
    (the same, on values that all rivals of a block share) or `relaxed`."""

    def __init__(self, method: Method, task: Task, batch: int) -> None:
        self.method = method
        method.start(task)
        method.position.steps = MANY
        self.batch = first_batch(task, batch)

    @classmethod
    def of(
        cls, phase: str, plan: NetworkPlan, task: Task, batch: int, stored: int = 0
    ) -> PhaseSteps:
        """Of a fresh method that has so many random tickets."""
        method = method_of(plan, **PHASES[phase])
        store(method, task, stored)
        return cls(method, task, batch)

    def step(self) -> float:
        self.method.before_step(self.batch)
        loss = self.method.counted_step(self.batch).loss
        self.method.position.step += 1
        return loss


def plain_training(network: str, sizes: Sizes, native: bool, layout: str) -> PlainTraining:
    """Training steps of the plain network of the full width, or of a ticket's."""
    build = NETWORKS[network](sizes.widths(network, native), sizes.side, sizes.classes)
    batch = first_batch(noise_task(sizes.shape, sizes.batch, sizes.classes), sizes.batch)
    return PlainTraining(build, batch.images, batch.labels, layout)


def plain_layouts(network: str, sizes: Sizes, native: bool) -> dict[str, PlainTraining]:
    """The same in every layout, by name: the fastest is what ours is compared with."""
    word = "native" if native else "dense"
    return {f"{word} {name}": plain_training(network, sizes, native, name) for name in LAYOUTS}
