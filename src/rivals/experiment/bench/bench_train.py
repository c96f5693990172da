"""Suite `train`: steps against those of ordinary networks, whole tasks, the whole loop."""

from __future__ import annotations

from collections.abc import Iterator

from rivals.experiment.bench.bench_loop import loop_row
from rivals.experiment.bench.bench_row import Row, at_least, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.bench_whole import whole_row
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.steps import PhaseSteps, plain_layouts
from rivals.experiment.bench.timing import fastest, interleave, ratio


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    yield from step_rows(sizes, repeat)
    yield whole_row("alexnet", sizes, at_least(7))
    yield whole_row("resnet18", sizes, at_least(10))
    yield loop_row(sizes)


def step_rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    """A settled, a competing and a relaxed step of the AlexNet, in turn with plain ones."""
    plan = sizes.plan("alexnet")
    task = noise_task(sizes.shape, sizes.batch, sizes.classes)
    ours = {
        phase: PhaseSteps.of(phase, plan, task, sizes.batch)
        for phase in ("settled", "competing", "relaxed")
    }
    plain = plain_layouts("alexnet", sizes, True) | plain_layouts("alexnet", sizes, False)
    times = interleave({name: each.step for name, each in (ours | plain).items()}, repeat)
    native, dense = fastest(times, "native"), fastest(times, "dense")
    settled, competing, relaxed = (times[phase] for phase in ours)
    ms = {name: f"{1000 * t.median:.1f} ms" for name, t in times.items()}
    small, wide = f"{1000 * native.median:.1f} ms", f"{1000 * dense.median:.1f} ms"
    found = ratio(settled, native)
    yield Row(
        "settled-step", found.value, "× native", at_most(1.10),
        f"AlexNet, settled step {ms['settled']}, native small network {small}", found.spread,
    )  # fmt: skip
    found = ratio(dense, competing)
    yield Row(
        "competing-step", found.value, "× faster", at_least(6),
        f"AlexNet, step with one active unit {ms['competing']}, dense {wide}", found.spread,
    )  # fmt: skip
    found = ratio(relaxed, dense)
    yield Row(
        "relaxed-step", found.value, "× dense", at_most(1.5),
        f"AlexNet, step with all units {ms['relaxed']}, dense {wide}", found.spread,
    )  # fmt: skip
