"""ONNX in 8 bits: weights and activations as bytes, their ranges read from images of the task.

A ticket that is unsure of its classes may change some of them when every layer is in bytes. Then
its smallest layers stay in float32, which costs few bytes (in convolutional tickets they are the
first ones, whose errors all the others inherit): as few as it takes for the calibration images to
agree. A ticket is surer of these, which it learned, than of others, so each is also blended with
another one, which is at least as hard as most that it never saw. Below half of the weights in bytes
this is given up.
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

from rivals.deploy.export_format import Format, Options, card, formats
from rivals.deploy.prepared import save, ticket_graph
from rivals.deploy.quantise import BATCH, layers, quantise
from rivals.errors import RivalsError
from rivals.seeds import Seed
from rivals.tickets.ticket import Ticket

if TYPE_CHECKING:
    from onnx import ModelProto

IMAGES = 512  # to calibrate with, at most
SURE = 0.999  # agreement on calibration images and blends: more than is asked for later
BLEND = 0.25  # of another image
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
        judged = torch.cat([images, blended(images)])
        wanted = torch.cat([ticket(some).argmax(1) for some in torch.split(judged, BATCH)]).numpy()
        inputs = judged if options.raw_input else ticket.preprocessing(judged)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            plain = ticket_graph(ticket, options.raw_input)
            stage = Path(folder) / "trial.onnx"
            trials = Trials(plain, inputs[: len(images)], inputs, wanted, stage)
            best = choose(trials)
        facts = {**card(ticket, options), "int8": round(best.share, 4)}
        save(best.model, facts, path)


@dataclass(frozen=True)
class Trial:
    """A graph with some layers in bytes."""

    model: ModelProto
    share: float  # of the weights, in bytes
    agreement: float  # share of images with the ticket's class


@dataclass
class Trials:
    """Quantises a graph in different ways, each judged on the same images."""

    plain: ModelProto
    calibration: Tensor
    judged: Tensor
    wanted: NDArray[np.int64]  # the ticket's classes of those judged
    stage: Path

    def __post_init__(self) -> None:
        self.weights = layers(self.plain)

    def __call__(self, kept: Collection[str]) -> Trial:
        """The trial in which the layers named in `kept` stay float32."""
        from rivals.edge.runtime_onnx import OnnxRuntime

        model = quantise(self.plain, kept, self.calibration, self.stage)
        save(model, {}, self.stage)
        runtime = OnnxRuntime(self.stage, self.stage.read_bytes())
        batches: list[NDArray[Any]] = [
            runtime(some.numpy())[0] for some in torch.split(self.judged, BATCH)
        ]
        agreement = float((np.concatenate(batches).argmax(1) == self.wanted).mean())
        share = 1 - sum(self.weights[name] for name in kept) / sum(self.weights.values())
        return Trial(model, share, agreement)


def choose(trials: Trials) -> Trial:
    """All layers in bytes if that will do; else with the fewest in float32 that will."""
    everything = trials([])
    if everything.agreement >= SURE:
        return everything
    order = sorted(trials.weights, key=lambda name: trials.weights[name])
    best, low, high = everything, 0, len(order)  # low will not do; high would be no int8 at all
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


def blended(images: Tensor) -> Tensor:
    """Each image with a quarter of another one in it."""
    other = images[torch.randperm(len(images), generator=Seed(0).child("blend").torch())]
    return ((1 - BLEND) * images.float() + BLEND * other.float()).round().to(torch.uint8)


formats.register("onnx-int8")(Int8())
