"""What teaching and asking a device costs, against its targets: one core, processes of their own.

    RIVALS_DATA=my/data python benchmarks/device.py

Five classes of Tiny-ImageNet, 100 pictures each at 64×64, are learned; pictures of MNIST are asked.
Without data, pictures are drawn at random, which costs the same. On a machine that is not idle the
seconds of the processor say more than those of the clock; both are printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

ASKED = 4000  # small pictures


@dataclass(frozen=True)
class Spent:
    """Seconds of the clock and of the processor, and the most memory in MB."""

    clock: float
    processor: float
    memory: float


def rivals(*words: str | Path) -> Spent:
    """Run a command on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "rivals.cli.main", *map(str, words)]
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(line, env=environment, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        if status:
            sys.exit(f"{' '.join(line)} ended with {status}")
        out.seek(0)
        said = out.read().splitlines()
    # What the system tells of a child's memory includes its parent's; `learn` tells its own.
    memory = json.loads(said[-1])["peak_memory"] / 1e6 if words[0] == "learn" else 0.0
    return Spent(seconds, used.ru_utime + used.ru_stime, memory)


def pictures(place: Path, name: str, side: int, classes: int, count: int) -> Path:
    """`count` pictures a class of a data set, or drawn at random where it is not there."""
    try:
        from rivals.streams.data.loading import load

        data = load(name)
        chosen = {
            label: data.train.images[np.flatnonzero(data.train.labels == label)[:count]]
            for label in range(classes)
        }
    except Exception as error:
        print(f"{name} is not there ({error}); pictures are drawn at random.", file=sys.stderr)
        random = np.random.default_rng(0)
        shape = (count, 3, side, side)
        chosen = {n: random.integers(0, 256, shape, np.uint8) for n in range(classes)}
    for label, images in chosen.items():
        own = place / f"class {label}"
        own.mkdir(parents=True)
        for number, pixels in enumerate(images):
            plain = pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
            Image.fromarray(plain).save(own / f"{number}.png")
    return place


def row(what: str, measured: str, target: str) -> None:
    print(f"| {what} | {measured} | {target} |", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        large = pictures(place / "large", "tiny-imagenet", 64, 5, 100)
        small = pictures(place / "small", "mnist", 28, 5, ASKED // 5)
        print("| | measured: processor (clock) | target |\n|---|---|---|")
        spent = rivals("learn", large, "--model", place / "model", "--json")
        row("`learn`, 5 × 100 pictures of 64×64", f"{spent.processor:.1f} s ({spent.clock:.1f} s)",
            "60 s")  # fmt: skip
        row("its peak memory", f"{spent.memory:.0f} MB", "600 MB")
        spent = min((rivals("--help") for _ in range(5)), key=lambda each: each.clock)
        row("`rivals --help`", f"{spent.processor:.2f} s ({spent.clock:.2f} s)", "0.3 s")
        rivals("learn", small, "--model", place / "digits", "--epochs", "1", "--json")
        ticket = place / "ticket.onnx"
        rivals("export", "--model", place / "digits", "--to", "onnx", ticket)
        one = next((small / "class 0").iterdir())
        models = {"a ticket in ONNX": ticket, "a model of one task": place / "digits"}
        for name, model in models.items():
            start = min((rivals("predict", one, "--model", model) for _ in range(3)),
                        key=lambda each: each.clock)  # fmt: skip
            target = "1 s" if model == ticket else ""
            row(f"`predict` with {name}, one picture",
                f"{start.processor:.2f} s ({start.clock:.2f} s)", target)  # fmt: skip
            many = rivals("predict", small, "--model", model, "--csv")
            speed = ASKED / (many.processor - start.processor)
            by_clock = ASKED / (many.clock - start.clock)
            row(f"the same, {ASKED:,} pictures", f"{speed:,.0f} a second ({by_clock:,.0f})",
                "1,000 a second")  # fmt: skip


if __name__ == "__main__":
    main()
