"""A real ticket for a device: LeNet learns a task of the bundled digits, for int8 and for C."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rivals.experiment.bench.bench_row import Row, at_least, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.run_settings import resolve
from rivals.learn.method import methods
from rivals.learn.trainer import Trainer
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.stream import StreamItem, streams
from rivals.tickets.ticket import Ticket

if TYPE_CHECKING:
    from rivals.deploy.ticket_source import TicketSource

FLASH = 64 * 1024  # bytes


def device_rows(sizes: Sizes, installed: Collection[str]) -> Iterator[Row]:
    """Parity in float32 and int8, and the flash of the C program, of one trained ticket."""
    from rivals.deploy.exported import export
    from rivals.deploy.test_pictures import of_stream_item
    from rivals.deploy.ticket_source import TicketSource

    ticket, item = digits_ticket(sizes)
    source = TicketSource(ticket, of_stream_item(item))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("onnx", "onnx-int8"):
            if name not in installed:
                continue
            made = export(source, name, Path(folder) / f"{name}.onnx")
            parity = made.parity
            how = f"LeNet on digits, {parity.images} images of the task, {made.bytes:,} bytes"
            if name == "onnx":
                unit = "of a probability"
                yield Row("deploy-parity", parity.difference, unit, at_most(1e-5), how)
                continue
            agree = 100 * parity.agreement
            yield Row("deploy-int8-agreement", agree, "%", at_least(99), how)
            lost = (parity.before or 0.0) - (parity.after or 0.0)
            said = f"{how}: {parity.before:.1f} % before, {parity.after:.1f} % after"
            yield Row("deploy-int8-lost", lost, "points", at_most(1), said)
        if "c" in installed:
            yield flash_row(source, Path(folder) / "c")


def digits_ticket(sizes: Sizes) -> tuple[Ticket, StreamItem]:
    """The first task of `rivals run digits`, learned here."""
    settings = resolve("digits", overrides={"epochs": sizes.epochs})
    item = streams["digits"].build(settings.stream, Seed(0).child("stream"))[0]
    shape = (1, 8, 8)
    method = methods["twta"](NetworkPlan(settings.network, shape), settings.training, Seed(0))
    Trainer(method).fit(item.task)
    task = item.task
    network = method.ticket(task.name)
    return Ticket(network, task.name, task.classes, task.preprocessing, shape), item


def flash_row(source: TicketSource, path: Path) -> Row:
    """Code and weights on a Cortex-M4 where its compiler is there, else on this machine."""
    from rivals.deploy.exported import export

    export(source, "c", path)
    sizes = json.loads((path / "card.json").read_text())["sizes"]
    target = "cortex-m4" if "cortex-m4" in sizes else "host"
    found = sizes[target]
    return Row(
        "deploy-flash", found["flash"], "bytes", at_most(FLASH),
        f"LeNet on digits in C for {target}, code and weights; {found['ram']:,} bytes of static "
        f"memory, {found.get('stack', 0):,} of stack, no heap",
    )  # fmt: skip
