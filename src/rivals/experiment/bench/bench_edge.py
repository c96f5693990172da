"""Suite `edge`: three tasks are learned one after the other, with torch and without it.

Every command is a process of its own, as on a device: what it takes to start counts. Seconds are
processor time, so that other processes do not count. A row is named edge-<what>-<who>, where who is
torch, numpy, or one of the kinds of C.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from rivals.edge.runtime_c import compiler
from rivals.errors import RivalsError
from rivals.experiment.bench.bench_row import Row, Target, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.bench_teachable import c_rows
from rivals.streams.digits import load

SIDE = 48  # pixels
GROUPS = ((0, 1, 2), (3, 4, 5), (6, 7, 8, 9))  # classes of the tasks
LEARNED, TESTED = 20, 50  # pictures of a class
WAYS = 5  # classes of the lesson whose costs are measured
PROGRAMS = {  # who: the module and the function that run a command line
    "torch": ("rivals.cli.main", "main"),
    "numpy": ("rivals.edge.command", "run"),
}
REFERENCES = {  # what MLPerf Tiny runs: the network, and KB of its weights
    "images": ("ResNet", 96),
    "persons": ("MobileNet", 325),
    "keywords": ("DS-CNN", 52.5),
    "anomalies": ("autoencoder", 270),
}
# Its last line says what the process has taken.
RUN = """
import json, sys, time
from importlib import import_module
sys.argv[1:], (module, name) = sys.argv[3:], sys.argv[1:3]
try:
    getattr(import_module(module), name)()
finally:
    from rivals.io.process_memory import peak_memory
    print(json.dumps({"seconds": time.process_time(), "memory": peak_memory()}))
"""


class TaughtTask(NamedTuple):
    """A task of the stream: uint8 pictures (n, channels, height, width) and labels."""

    name: str
    classes: tuple[str, ...]
    learned: Tensor
    labels: Tensor
    tested: Tensor
    truth: Tensor


def lesson(name: str, numbers: tuple[int, ...], learned: int, tested: int) -> TaughtTask:
    """Some of the bundled digits, as large as an ancestor looks at them."""
    images, labels, _ = load()
    large = torch.nn.functional.interpolate(images.float() * 15, (SIDE, SIDE), mode="bilinear")
    pictures = large.round().clamp(0, 255).to(torch.uint8).expand(-1, 3, -1, -1)
    own = [torch.nonzero(labels == number).flatten() for number in numbers]
    parts = [[part[:learned] for part in own], [part[learned:][:tested] for part in own]]
    found: list[Tensor] = []
    for places in parts:
        truth = torch.arange(len(own)).repeat_interleave(torch.tensor([len(p) for p in places]))
        found += [pictures[torch.cat(places)].contiguous(), truth]
    return TaughtTask(name, tuple(f"digit {n}" for n in numbers), *found)


def lessons() -> list[TaughtTask]:
    """The stream: three tasks of the bundled digits."""
    return [lesson("-".join(map(str, each)), each, LEARNED, TESTED) for each in GROUPS]


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    stream = lessons()[: sizes.whole_tasks]
    with tempfile.TemporaryDirectory() as folder:
        for who in PROGRAMS:
            place = Path(folder) / who
            yield from cost_rows(who, place, min(repeat, 5))
            yield from accuracy_rows(who, place, stream)
    if compiler() and shutil.which("make"):
        yield from c_rows(stream)
    for what, (network, size) in REFERENCES.items():
        how = f"{network}, as published with MLPerf Tiny 0.5; it learns nothing on the device"
        yield Row(f"edge-weights-mlperf-{what}", size, "KB", None, how)


def cost_rows(who: str, place: Path, repeat: int) -> Iterator[Row]:
    """A first lesson of 5 × 20 pictures, and one answer after it."""
    pictures = lesson("first", tuple(range(WAYS)), LEARNED, 1)
    folder = write(place / "first", pictures.learned, pictures)
    answered = next(write(place / "asked", pictures.tested, pictures).glob("*/*.png"))
    learned, answers = list[dict[str, float]](), list[dict[str, float]]()
    for number in range(repeat):
        model = place / f"model{number}"
        learned.append(run(who, "learn", folder, "--model", model))
        answers.append(run(who, "predict", answered, "--model", model))
    files = [path for path in model.rglob("*") if path.is_file() and path.name != ".spare"]
    size = sum(path.stat().st_size for path in files)
    limits: dict[str, Target] = {}
    if who == "numpy":
        limits = {"learn": at_most(5), "answer": at_most(700), "memory": at_most(100)}
    how = "5 × 20 pictures, a process of its own, its start included"
    for what, unit, values, limit in (
        ("learn-seconds", "s", [each["seconds"] for each in learned], "learn"),
        ("learn-memory", "MB", [each["memory"] / 1e6 for each in learned], "memory"),
        ("answer-ms", "ms", [1000 * each["seconds"] for each in answers], "answer"),
        ("answer-memory", "MB", [each["memory"] / 1e6 for each in answers], "memory"),
    ):
        said = f"processor time; {how}" if limit != "memory" else f"resident at most; {how}"
        spread = (min(values), max(values)) if len(values) > 1 else None
        yield Row(f"edge-{what}-{who}", median(values), unit, limits.get(limit), said, spread)
    yield Row(f"edge-bytes-{who}", size / 1e3, "KB", None, "the folder of the model with that task")


def accuracy_rows(who: str, place: Path, stream: list[TaughtTask]) -> Iterator[Row]:
    """After each task the accuracy on the test pictures of all tasks so far, task not given."""
    model, tested = place / "stream", place / "tested"
    for number, each in enumerate(stream, 1):
        run(who, "learn", write(place / each.name, each.learned, each), "--model", model)
        write(tested, each.tested, each)
        found = run(who, "test", tested, "--model", model, "--json")["said"]
        count = sum(len(task.truth) for task in stream[:number])
        yield Row(
            f"edge-accuracy-after-{number}-{who}", found["accuracy"], "%", None,
            f"{count} test pictures of the tasks so far, task not given",
        )  # fmt: skip


def write(folder: Path, images: Tensor, task: TaughtTask) -> Path:
    """Pictures as files, a folder for each class."""
    truth = task.labels if images is task.learned else task.truth
    for number, (image, label) in enumerate(zip(images, truth.tolist(), strict=True)):
        place = folder / task.classes[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{number}.png")
    return folder


def run(who: str, *words: str | Path) -> dict[str, Any]:
    """A command in a process of its own: what it said, its processor time and its memory."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *PROGRAMS[who], *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RivalsError(f"`{who} {words[0]}` ended with {done.returncode}: {last}")
    said, _, taken = done.stdout.rstrip().rpartition("\n")
    return {**json.loads(taken), "said": json.loads(said) if "--json" in words else said}
