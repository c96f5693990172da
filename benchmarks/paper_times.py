"""How long the paper's recipe takes on this machine, by its steps: a table for docs/paper.md.

    python benchmarks/paper_times.py

Every network is trained for a few steps on noise of the benchmark's size, with one thread; the time
of a step times the steps of all tasks is the estimate. Nothing of a run but its steps is counted.
"""

from __future__ import annotations

import sys
import time

import torch

from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.steps import PhaseSteps
from rivals.experiment.run_settings import resolve
from rivals.learn.method import methods
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed

EPOCHS = 30
STEPS = 4
# Classes of a task, tasks, training images of a task under the 9:1 split, shape of a picture.
STREAMS = {
    "cifar100": (10, 10, 5_400, (3, 32, 32)),
    "omniglot-rotation": (12, 100, 864, (1, 32, 32)),
    "pmnist": (10, 20, 63_000, (1, 32, 32)),
    "tiny-imagenet": (5, 40, 2_475, (3, 64, 64)),
    "five-datasets": (10, 5, 61_000, (3, 32, 32)),
}


def step_seconds(stream: str, preset: str) -> float:
    """Seconds of a step, the quickest of a few."""
    settings = resolve(stream, preset=preset)
    classes, _, _, shape = STREAMS[stream]
    plan = NetworkPlan(settings.network, shape)
    method = methods["twta"](plan, settings.training, Seed(0))
    task = noise_task(shape, settings.training.batch_size, classes)
    steps, found = PhaseSteps(method, task, settings.training.batch_size), []
    for _ in range(STEPS):
        start = time.process_time()
        steps.step()
        found.append(time.process_time() - start)
    return min(found[1:])


def main() -> None:
    torch.set_num_threads(1)
    print(
        f"{'stream':18} {'preset':24} {'ms a step':>10} {'hours, all':>11} {'hours, one task':>16}"
    )
    for stream, (_, tasks, images, _) in STREAMS.items():
        presets = ["paper-repaired"]
        presets += ["paper-table"] if stream != "omniglot-rotation" else []
        for preset in presets:
            seconds = step_seconds(stream, preset)
            hours = seconds * EPOCHS * images / 40 / 3600
            line = f"{1000 * seconds:10.1f} {hours * tasks:11.1f} {hours:16.2f}"
            print(f"{stream:18} {preset:24} {line}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
