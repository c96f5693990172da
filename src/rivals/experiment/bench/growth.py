"""Suite `growth`: a step and the memory of a process that has learned many tasks, against one."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from rivals.experiment.bench.bench_row import Row, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.bench_stored import store
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.probe import ask, warm_up
from rivals.experiment.bench.steps import PHASES, PhaseSteps, method_of
from rivals.experiment.bench.timing import interleave, ratio
from rivals.io.process_memory import resident_memory
from rivals.nn.network_plan import NetworkPlan, NetworkSettings

UNITS = 64  # as many as growth would give the first layer on the way to many tasks
SHAPE = (1, 8, 8)


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    """A process with one task stored and one with many; steps take turns in the second."""
    one = ask("growth", sizes, tasks=1, rounds=repeat)
    many = ask("growth", sizes, tasks=sizes.stored, rounds=repeat)
    where = f"LeNet of {UNITS} rivals a block, {sizes.stored:,} random tickets stored"
    for phase in ("settled", "competing"):
        found = many[phase]
        yield Row(
            f"growth-{phase}-step", found["ratio"]["value"], "× one task", at_most(1.10),
            f"{where}: a {phase} step takes {found['ms']['many']:.2f} ms, with one task stored "
            f"{found['ms']['one']:.2f} ms",
            (found["ratio"]["spread"][0], found["ratio"]["spread"][1]),
        )  # fmt: skip
    each = (many["bytes"] - one["bytes"]) / max(1, sizes.stored - 1)
    yield Row(
        "growth-memory", many["bytes"] / one["bytes"], "× one task", at_most(1.10),
        f"{where}: the process occupies {many['bytes'] / 1e6:.0f} MB, with one task stored "
        f"{one['bytes'] / 1e6:.0f} MB: {each / 1000:.1f} KB a task, of which "
        f"{many['stored'] / sizes.stored / 1000:.1f} KB are what a checkpoint holds",
    )  # fmt: skip
    yield Row(
        "growth-open-task", many["open"], "s", None,
        f"{where}: opening the next task (once a task), with one task stored {one['open']:.3f} s",
    )  # fmt: skip


def network() -> NetworkPlan:
    """The paper's LeNet on pictures of the bundled digits' size, with room for many tasks."""
    widths = (2 * UNITS, 6 * UNITS, 50 * UNITS)
    return NetworkPlan(NetworkSettings(architecture="lenet", widths=widths, units=UNITS), SHAPE)


class Filled:
    """A method that has many tasks stored and learns another one, in one phase or the other."""

    def __init__(self, tasks: int, sizes: Sizes) -> None:
        self.sizes = sizes
        self.method = method_of(network(), **PHASES["settled"], enabled=False)
        store(self.method, noise_task(SHAPE, sizes.batch, sizes.classes), tasks)

    def steps(self, phase: str) -> PhaseSteps:
        """Open a task of its own for `phase`."""
        number = list(PHASES).index(phase)
        task = noise_task(SHAPE, self.sizes.batch, self.sizes.classes, number)
        self.method.settings = type(self.method.settings).from_paths(PHASES[phase])
        return PhaseSteps(self.method, task, self.sizes.batch)


def stored(sizes: Sizes, tasks: int, rounds: int) -> dict[str, Any]:
    """With `tasks` tasks stored: resident bytes while a step is taken, and step times against 1."""
    warm_up()
    many = Filled(tasks, sizes)
    start = time.process_time()
    steps = many.steps("settled")
    found: dict[str, Any] = {"open": time.process_time() - start}
    steps.step()
    gc.collect()
    found["bytes"] = resident_memory()
    if tasks == 1:
        return found
    found["stored"] = sum(many.method.footprint().values())
    one = Filled(1, sizes)
    for phase in ("settled", "competing"):
        mine = steps if phase == "settled" else many.steps(phase)
        times = interleave({"many": mine.step, "one": one.steps(phase).step}, rounds)
        found[phase] = {
            "ratio": vars(ratio(times["many"], times["one"])),
            "ms": {name: 1000 * t.median for name, t in times.items()},
        }
    return found
