"""A measurement in a process of its own: `python -m rivals.experiment.bench.probe` prints JSON.

Extra memory is the peak at the end minus the peak after a warm-up: one tiny step of every kind,
with its optimiser. Libraries, thread pools and the first buffers of torch are in both.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import torch

from rivals.errors import RivalsError
from rivals.experiment.bench.bench_sizes import TINY, Sizes
from rivals.experiment.bench.bench_stored import store
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.steps import method_of, plain_training
from rivals.io.process_memory import peak_memory
from rivals.learn.callbacks import OnStep
from rivals.learn.trainer import Trainer

PAGE = 4096  # bytes; the least that is reported


def ask(what: str, sizes: Sizes, **options: Any) -> dict[str, Any]:
    """Start a process for one measurement and read its answer."""
    words = {"what": what, "sizes": dataclasses.asdict(sizes), "options": options}
    done = subprocess.run(
        [sys.executable, "-m", "rivals.experiment.bench.probe", json.dumps(words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RivalsError(f"The process that measures {what} ended with {done.returncode}: {last}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def warm_up() -> None:
    """One tiny step of each kind of training, with the optimiser."""
    for network in ("alexnet", "resnet18"):
        plain_training(network, TINY, native=True, layout="channels_last").step()
        learn(network, TINY, "generated")


def learn(
    network: str, sizes: Sizes, storage: Any, stored: int = 0, **settings: Any
) -> tuple[float, float, int]:
    """A short task with our method, after `stored` others: its first loss, its last, and the
    weights of the network. Half of its steps compete, unless `settings` say otherwise."""
    settings = {"batch_size": sizes.batch, "epochs": 1, "share": 0.5, **settings}
    method = method_of(sizes.plan(network, storage), **settings)
    store(method, noise_task(sizes.shape, sizes.batch, sizes.classes), stored)
    task = noise_task(sizes.shape, sizes.memory_steps * sizes.batch, sizes.classes)
    losses: list[float] = []
    Trainer(method, [OnStep(lambda step: losses.append(step.loss))]).fit(task)
    return losses[0], losses[-1], method.full_weights()


def memory(sizes: Sizes, network: str, kind: str, **settings: Any) -> dict[str, Any]:
    """Extra bytes of training: `dense`, `native`, or ours with weights `held` or `generated`."""
    warm_up()
    before = peak_memory()
    facts: dict[str, Any] = {}
    if kind in ("dense", "native"):
        training = plain_training(network, sizes, kind == "native", "channels_last")
        for _ in range(sizes.memory_steps):
            training.step()
    else:
        first, last, weights = learn(network, sizes, kind, **settings)
        facts = {"first_loss": first, "last_loss": last, "weights": weights}
    return {"bytes": max(PAGE, peak_memory() - before), "before": before, **facts}


def main() -> None:
    from rivals.experiment.bench.bench_load import load
    from rivals.experiment.bench.growth import stored

    words = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in words["sizes"].items()
    }
    measure: Any = {"memory": memory, "growth": stored, "load": load}[words["what"]]
    print(json.dumps(measure(Sizes(**given), **words["options"])))


if __name__ == "__main__":
    main()
