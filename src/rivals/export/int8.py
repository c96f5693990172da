"""ONNX in 8 bits: weights and activations as bytes, their ranges read from images of the task.

A ticket that is unsure of its classes may change some of them when every layer is in bytes. Then
the layers that disturb it most, for their size, stay in float32: as few as it takes for the
calibration images to agree. Below half of the weights in bytes this is given up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rivals.edge.artefact import softmax
from rivals.errors import RivalsError
from rivals.export.format import Format, Options, card, formats
from rivals.export.graph import save, ticket_graph
from rivals.export.quantise import BATCH, layers, quantise
from rivals.tickets import Ticket

if TYPE_CHECKING:
    from onnx import ModelProto

IMAGES = 512  # to calibrate with, at most
SURE = 0.998  # agreement on calibration images, of which some were learned: more than asked for
LEAST = 0.5  # share of the weights that are bytes in what is called int8


class Int8(Format):
    """Static quantisation, the head's scores staying float32."""

    suffix = ".onnx"
    extra = "export"
    modules = ("onnx", "onnxscript", "onnxruntime")
    tolerance = 1.0  # classes and accuracy are compared, not probabilities
    agreement = 0.99

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        if options.calibration is None:
            raise RivalsError(
                "The format 'onnx-int8' reads the ranges of numbers from images of the task, and "
                "there are none; name a folder of them with --images."
            )
        images = options.calibration[:IMAGES]
        inputs = images if options.raw_input else ticket.preprocessing(images)
        wanted = torch.cat([ticket(some) for some in torch.split(images, BATCH)]).numpy()
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            plain = ticket_graph(ticket, options.raw_input)
            trials = Trials(plain, inputs, wanted, Path(folder) / "trial.onnx")
            best = choose(trials)
        facts = {**card(ticket, options), "int8": round(best.share, 4)}
        save(best.model, facts, path)


@dataclass(frozen=True)
class Trial:
    """A graph with some layers in bytes."""

    model: ModelProto
    share: float  # of the weights, in bytes
    agreement: float  # share of calibration images with the ticket's class
    error: float  # mean square of the differences of probabilities


@dataclass
class Trials:
    """Quantises a graph in different ways, each judged on the calibration images."""

    plain: ModelProto
    inputs: Tensor
    wanted: NDArray[np.float32]
    stage: Path

    def __post_init__(self) -> None:
        self.weights = layers(self.plain)

    def __call__(self, kept: Collection[str]) -> Trial:
        """The trial in which the layers named in `kept` stay float32."""
        from rivals.edge.onnx import Runtime

        model = quantise(self.plain, kept, self.inputs, self.stage)
        save(model, {}, self.stage)
        runtime = Runtime(self.stage)
        batches: list[NDArray[Any]] = [
            runtime(some.numpy())[0] for some in torch.split(self.inputs, BATCH)
        ]
        found = softmax(np.concatenate(batches))
        agreement = float((found.argmax(1) == self.wanted.argmax(1)).mean())
        share = 1 - sum(self.weights[name] for name in kept) / sum(self.weights.values())
        return Trial(model, share, agreement, float(np.square(found - self.wanted).mean()))


def choose(trials: Trials) -> Trial:
    """All layers in bytes if that will do; else with the fewest in float32 that will."""
    everything = trials([])
    if everything.agreement >= SURE:
        return everything
    names = list(trials.weights)

    def harm(name: str) -> float:
        """What this layer alone disturbs, for each of its weights."""
        return trials([other for other in names if other != name]).error / trials.weights[name]

    order = sorted(names, key=harm, reverse=True)
    best, low, high = everything, 0, len(names)  # low will not do; high would be no int8 at all
    while high - low > 1:
        middle = (low + high) // 2
        trial = trials(order[:middle])
        if trial.agreement >= SURE or trial.share < LEAST:
            high = middle
        else:
            low = middle
        if trial.share >= LEAST and trial.agreement > best.agreement:
            best = trial
    return best


formats.register("onnx-int8")(Int8())
