"""The whole loop of a run, with data, evaluation, checkpoints, ticket, against its bare steps."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from rivals.experiment.bench.bench_row import Row, at_most
from rivals.experiment.bench.bench_sizes import TINY, Sizes
from rivals.experiment.bench.noise_stream import NoiseSettings
from rivals.experiment.bench.steps import plain_training
from rivals.experiment.run_settings import RunSettings
from rivals.experiment.start import prepare
from rivals.learn.method import StepResult
from rivals.learn.twta import TWTA
from rivals.nn.network_plan import NetworkPlan
from rivals.registry import imports_allowed
from rivals.seeds import Seed
from rivals.streams.task import Batch


class TimedTWTA(TWTA):
    """TWTA that knows how many seconds its steps took."""

    def __init__(self, plan: NetworkPlan, settings: Any, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.seconds = 0.0

    def step(self, batch: Batch) -> StepResult:
        start = time.perf_counter()
        result = super().step(batch)
        self.seconds += time.perf_counter() - start
        return result


def loop_row(sizes: Sizes) -> Row:
    """One run of one task in a folder of its own, thrown away afterwards."""
    settings = RunSettings(
        benchmark="rivals.experiment.bench.noise_stream:benchmark",
        method="rivals.experiment.bench.bench_loop:TimedTWTA",
        preset="default",
        seed=0,
        stream=NoiseSettings(images=sizes.loop_images, classes=sizes.classes, side=sizes.side),
        network=sizes.plan("alexnet").settings,
        training=TWTA.settings_class(batch_size=sizes.batch, epochs=sizes.loop_epochs),
    )
    plain_training("alexnet", TINY, True, "contiguous")  # torch loads much with its first optimiser
    ours = imports_allowed([settings.benchmark, settings.method])
    with tempfile.TemporaryDirectory() as folder, ours:
        run = prepare(settings, Path(folder) / "run", save_every=sizes.save_every)
        start = time.perf_counter()
        run.go()
        seconds = time.perf_counter() - start
    assert isinstance(run.method, TimedTWTA)
    bare = run.method.seconds
    return Row(
        "loop", seconds / bare, "× bare steps", at_most(1.05),
        f"AlexNet, a run of {run.method.position.steps} steps with data, opening and closing the "
        f"task, evaluation, a checkpoint every {sizes.save_every:g} s and the ticket took "
        f"{seconds:.1f} s, its steps alone {bare:.1f} s",
    )  # fmt: skip
