"""Suite `tickets`: a ticket's forward pass and bytes, and inferring the task among many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, fx

from rivals.experiment.bench.bench_row import Row, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.plain_networks import LAYOUTS, NETWORKS, PlainForward
from rivals.experiment.bench.steps import first_batch, method_of
from rivals.experiment.bench.timing import Variant, fastest, interleave, ratio
from rivals.learn.twta import TWTA
from rivals.nn.task_tensors import winner_bits
from rivals.streams.task import Task
from rivals.tickets.ticket import Ticket

ROOM = 8192  # bytes beside the weights


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    for network in ("alexnet", "resnet18"):
        method, task = learned(network, sizes, 1)
        for count in (1, sizes.batch):
            yield forward_row(network, method.ticket(task.name), task, count, sizes, repeat)
        yield disk_row(network, method, task)
    method, task = learned("alexnet", sizes, sizes.tickets)
    yield from stored_rows(method)
    yield infer_row(method, task, sizes, repeat)


def learned(network: str, sizes: Sizes, tasks: int) -> tuple[TWTA, Task]:
    """A method that has random tickets for `tasks` tasks, without a step, and the last task."""
    method = method_of(sizes.plan(network), "random-ticket", batch_size=sizes.batch, contenders=1)
    assert isinstance(method, TWTA)
    for number in range(tasks):
        task = noise_task(sizes.shape, sizes.batch, sizes.classes, number)
        method.start(task)
        method.finish(task)
    return method, task


def plain_forwards(network: str, sizes: Sizes, native: bool, images: Tensor) -> dict[str, Variant]:
    """The plain network without norms (a ticket has them folded in too), in every layout."""
    word = "native" if native else "dense"
    build = partial(NETWORKS[network], sizes.widths(network, native), sizes.side, sizes.classes)
    return {f"{word} {name}": PlainForward(build(folded=True), images, name) for name in LAYOUTS}


def forward_row(
    network: str, ticket: fx.GraphModule, task: Task, count: int, sizes: Sizes, repeat: int
) -> Row:
    """The ticket as it was cut, and the plain network, each with images in its fastest layout."""
    images = first_batch(task, sizes.batch).images[:count]
    variants: dict[str, Variant] = {
        f"ticket {name}": partial(_forward, ticket, images.contiguous(memory_format=layout))
        for name, layout in LAYOUTS.items()
    }
    times = interleave(variants | plain_forwards(network, sizes, True, images), repeat)
    ours, native = fastest(times, "ticket"), fastest(times, "native")
    found = ratio(ours, native)
    return Row(
        f"ticket-{network}-batch-{'1' if count == 1 else '40'}", found.value, "× native",
        at_most(1.05),
        f"ticket {1000 * ours.median:.2f} ms for {count} images "
        f"({1000 * times['ticket contiguous'].median:.2f} ms if they are contiguous), native small "
        f"network with its norms folded in {1000 * native.median:.2f} ms",
        found.spread,
    )  # fmt: skip


@torch.no_grad()
def _forward(ticket: fx.GraphModule, images: Tensor) -> Tensor:
    scores: Tensor = ticket(images)
    return scores


def disk_row(network: str, method: TWTA, task: Task) -> Row:
    """A ticket folder, byte by byte, with what is more than its weights."""
    winners = [found.tolist() for found in method.winners(task.name)]
    ticket = Ticket(
        method.ticket(task.name), task.name, task.classes, task.preprocessing,
        method.plan.input_shape, winners, 100.0,
    )  # fmt: skip
    weights = sum(p.numel() for p in ticket.network.parameters())
    with tempfile.TemporaryDirectory() as folder:
        ticket.save(Path(folder) / "ticket")
        files = sorted((Path(folder) / "ticket").iterdir())
        size = sum(file.stat().st_size for file in files)
        parts = ", ".join(f"{file.name} {file.stat().st_size:,}" for file in files)
    return Row(
        f"ticket-{network}-disk", size - 4 * weights, "bytes", at_most(ROOM),
        f"bytes of the folder ({parts}) beyond 4 for each of its {weights:,} weights",
    )  # fmt: skip


def stored_rows(method: TWTA) -> Iterator[Row]:
    """What a task adds to a model beside the weights it claims."""
    bits, blocks = winner_bits(method.network), sum(r.blocks for r in method.network.rivals())
    units = ", ".join(str(rivals.units) for rivals in method.network.rivals())
    tasks = method.footprint()["tasks"] / len(method.known)
    yield Row(
        "task-bytes", tasks, "bytes", None,
        f"AlexNet, stored for each of {len(method.known)} tasks beside its claimed weights: "
        "winners, norms, head, and what it takes to name the task",
    )  # fmt: skip
    yield Row(
        "winner-bits", bits, "bits", None,
        f"AlexNet, winners of a task: {blocks} blocks at ⌈log2 J⌉ bits, J = {units} by layer",
    )  # fmt: skip


def infer_row(method: TWTA, task: Task, sizes: Sizes, repeat: int) -> Row:
    """`predict` without a task, against one forward pass of the dense network."""
    raw, images = task.train.images, first_batch(task, sizes.batch).images
    variants: dict[str, Variant] = {"infer": partial(method.predict, raw, None)}
    times = interleave(variants | plain_forwards("alexnet", sizes, False, images), repeat)
    dense = fastest(times, "dense")
    found = ratio(times["infer"], dense)
    return Row(
        "infer-task", found.value, "× dense forward", at_most(2),
        f"AlexNet, predict without a task among {len(method.known)} tickets "
        f"{1000 * times['infer'].median:.1f} ms for {len(raw)} images, one dense forward "
        f"{1000 * dense.median:.1f} ms",
        found.spread,
    )  # fmt: skip
