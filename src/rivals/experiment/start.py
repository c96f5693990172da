"""Put a run together: stream, network plan, method, folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rivals.errors import RivalsError
from rivals.experiment.loop import Run
from rivals.experiment.results import Results
from rivals.experiment.run_folder import RunFolder
from rivals.experiment.run_settings import RunSettings
from rivals.learn.callbacks import Callback
from rivals.learn.method import methods
from rivals.nn.device import find_device
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.on_validation import measured_on
from rivals.streams.stream import Stream, streams


def prepare(
    settings: RunSettings,
    out: Path,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    asked_to_stop: Callable[[], bool] = lambda: False,
    save_every: float = 30.0,
    on: str = "test",
    stream: Stream | None = None,
) -> Run:
    """A run in `out`, new or resumed, ready to go; `on` is what accuracy is measured on."""
    if not save_every >= 0:
        raise RivalsError(f"save_every is {save_every}, but must not be negative.")
    torch.set_num_threads(settings.threads)
    seed = Seed(settings.seed)
    if stream is None:
        stream = streams[settings.benchmark].build(settings.stream, seed.child("stream"))
    stream = methods[settings.method].view_of(measured_on(stream, on), settings.training)
    plan = NetworkPlan(settings.network, stream.input_shape, find_device(settings.device))
    method = methods[settings.method](plan, settings.training, seed.child("method"))
    folder = RunFolder(out)
    if resume:
        folder.resume(settings, stream)
    else:
        folder.start(settings, stream)
    results = Results.empty(
        settings.benchmark, settings.method, settings.preset, settings.seed, stream.subset
    )
    if on == "validation":
        results.content["measured_on"] = on
    if method.pretrained:
        results.content["ancestor"] = method.pretrained
    run = Run(
        stream, method, folder, results, seed.child("evaluation"), callbacks,
        asked_to_stop=asked_to_stop, save_every=save_every,
    )  # fmt: skip
    if resume and folder.checkpoints.exists():
        run.restore(folder.checkpoints)
    return run
