"""Suite `deploy`: a ticket, the native small network and the dense one on the runtimes installed.

Each is exported as `rivals export` would do it, then all take turns with one image at a time.
Memory is the high-water mark of a process of its own that loads the artefact and reads one image.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from rivals.errors import RivalsError
from rivals.experiment.bench.bench_digits import device_rows
from rivals.experiment.bench.bench_row import Row, at_least, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.bench_tickets import learned
from rivals.experiment.bench.timing import Times, Variant, interleave, ratio
from rivals.seeds import Seed
from rivals.tickets.ticket import Ticket

SUFFIXES = {
    "onnx": ".onnx", "ort": ".ort", "onnx-int8": ".onnx", "litert": ".tflite",
    "executorch": ".pte", "c": "",
}  # fmt: skip
IMAGES = 64  # to calibrate int8 with
WIDE_C = 1_000_000  # weights: more would be a hundred megabytes of source
ONE_IMAGE = """
import sys
{load}
from rivals.io.process_memory import peak_memory
print(peak_memory())
"""
EDGE = """
import numpy
from rivals import edge
artefact = edge.load(sys.argv[1], run_native=True)
artefact.run(numpy.zeros((1, *artefact.card.input_shape), numpy.uint8))
"""
TORCH = """
import torch
from pathlib import Path
from rivals.tickets import Ticket
torch.set_num_threads(1)
ticket = Ticket.load(Path(sys.argv[1]))
ticket(torch.zeros(1, *ticket.input_shape, dtype=torch.uint8))
"""


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from table(sizes, repeat, Path(folder))
    yield from device_rows(sizes, installed())


def table(sizes: Sizes, repeat: int, folder: Path) -> Iterator[Row]:
    """Microseconds, bytes and memory of every network on every runtime, and the targets."""
    tickets, images = networks(sizes)
    variants: dict[str, Variant] = {}
    places: dict[str, Path] = {}
    for kind, ticket in tickets.items():
        name = f"torch-{kind}"
        places[name], variants[name] = folder / name, partial(ticket, images[:1])
        ticket.save(places[name])
        for runtime in installed():
            if runtime == "c" and weights(ticket) > WIDE_C:
                continue
            name = f"{runtime}-{kind}"
            places[name] = folder / f"{name}{SUFFIXES[runtime]}"
            write(runtime, ticket, images, places[name])
            variants[name] = runner(places[name], images[:1])
    times = interleave(variants, repeat)
    sizes_on_disk = {name: size(place) for name, place in places.items()}
    if "onnx-dense" in times:
        yield from targets(times, sizes_on_disk)
    for name, turns in times.items():
        yield Row(f"deploy-us-{name}", 1e6 * turns.median, "µs", None, "one image, batch 1")
        yield Row(f"deploy-bytes-{name}", sizes_on_disk[name], "bytes", None, "on disk")
        memory = resident(places[name], TORCH if name.startswith("torch") else EDGE)
        if name == "onnx-ticket":
            limit, how = at_most(64), "a runner process without torch, with one image read"
            yield Row("deploy-runner-memory", memory / 1e6, "MB", limit, how)
        yield Row(f"deploy-mb-{name}", memory / 1e6, "MB", None, "resident, in its own process")


def networks(sizes: Sizes) -> tuple[dict[str, Ticket], Tensor]:
    """A ticket, the native network of its shape and the dense one, and images for them."""
    method, task = learned("alexnet", sizes, 1)
    cut = {"ticket": method.ticket(task.name)}
    for kind, size in (("native", "ticket"), ("dense", "full")):
        network = method.plan.dense(Seed(0), size)
        network.add(task.name, len(task.classes))
        cut[kind] = network.cut(task.name)
    shape = method.plan.input_shape
    tickets = {
        kind: Ticket(network, task.name, task.classes, task.preprocessing, shape)
        for kind, network in cut.items()
    }
    return tickets, task.train.images[:IMAGES]


def installed() -> list[str]:
    """The formats whose extras are there."""
    from rivals.deploy.export_format import formats

    found = []
    for name in SUFFIXES:
        try:
            formats[name].check_installed(name)
            found.append(name)
        except RivalsError:
            continue
    return found


def write(runtime: str, ticket: Ticket, images: Tensor, path: Path) -> None:
    """As an export, but int8 in all layers whatever that does to classes of noise."""
    from rivals.deploy.export_format import Options, card, formats
    from rivals.deploy.prepared import save, ticket_graph
    from rivals.deploy.quantise import quantise

    if runtime != "onnx-int8":
        formats[runtime].write(ticket, path, Options())
        return
    graph = quantise(ticket_graph(ticket, True), [], images, path.with_suffix(".stage"))
    save(graph, card(ticket, Options()), path)


def runner(path: Path, image: Tensor) -> Variant:
    from rivals import edge

    pixels = np.ascontiguousarray(image.numpy())
    return partial(edge.load(path, run_native=True).run, pixels)


def targets(times: dict[str, Times], sizes: dict[str, int]) -> Iterator[Row]:
    found = ratio(times["onnx-dense"], times["onnx-ticket"])
    yield Row(
        "deploy-latency", found.value, "× faster", at_least(15),
        f"AlexNet on onnxruntime, one image: dense {1e6 * times['onnx-dense'].median:.0f} µs, "
        f"ticket {1e6 * times['onnx-ticket'].median:.0f} µs", found.spread,
    )  # fmt: skip
    yield Row(
        "deploy-file", sizes["onnx-dense"] / sizes["onnx-ticket"], "× smaller", at_least(40),
        f"AlexNet as ONNX: dense {sizes['onnx-dense']:,} bytes, ticket "
        f"{sizes['onnx-ticket']:,} bytes",
    )  # fmt: skip


def resident(path: Path, load: str) -> int:
    """The largest resident size of a process that reads one image, in bytes."""
    code = ONE_IMAGE.format(load=load)
    words = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RivalsError(f"The process that runs {path.name} ended: {last}")
    return int(done.stdout)


def size(path: Path) -> int:
    """Bytes of an artefact; of a C program those of its source."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    beside = path.with_name(f"{path.name}.json")
    return sum(file.stat().st_size for file in [*files, *([beside] if beside.is_file() else [])])


def weights(ticket: Ticket) -> int:
    return sum(parameter.numel() for parameter in ticket.network.parameters())
