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
    yield from sibling_rows(sizes, repeat)
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


def sibling_rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    """A step in which all rivals of every block compete as siblings, in turn with a settled one.

    On the first task rivals are equal; later they differ in the edges that earlier tasks own, which
    each draw puts together anew.
    """
    plan = sizes.plan("alexnet")
    task = noise_task(sizes.shape, sizes.batch, sizes.classes)
    for stored, name in ((0, "siblings-step"), (sizes.earlier_tasks, "siblings-step-later")):
        steps = {
            phase: PhaseSteps.of(phase, plan, task, sizes.batch, stored).step
            for phase in ("settled", "siblings")
        }
        times = interleave(steps, repeat)
        found = ratio(times["siblings"], times["settled"])
        ms = {phase: f"{1000 * t.median:.1f} ms" for phase, t in times.items()}
        yield Row(
            name, found.value, "× settled", at_most(1.35),
            f"AlexNet, all {sizes.units} rivals of a block compete, {stored} earlier tasks: "
            f"{ms['siblings']}, settled step {ms['settled']}", found.spread,
        )  # fmt: skip
