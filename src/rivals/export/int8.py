"""ONNX in 8 bits: weights and activations as bytes, their ranges read from images of the task.

Weights have a scale for each output channel. Both sides are signed, which gives the same numbers
on processors with and without 8-bit dot products. Some networks lose classes when every layer is
in bytes, so layers are taken out of it step by step until the calibration images agree.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.export.format import Format, Options, card, formats
from rivals.export.graph import INPUT, save, silence, slim, ticket_graph
from rivals.tickets import Ticket

if TYPE_CHECKING:
    from onnx import ModelProto

IMAGES = 512  # to calibrate with, at most
BATCH = 64
SURE = 0.995  # agreement on calibration images; more than is asked for later, on others
WEIGHTED = ("Conv", "Gemm", "MatMul")
QUANTISED = (*WEIGHTED, "MaxPool", "Relu", "Add", "Reshape", "GlobalAveragePool", "Flatten")


class Int8(Format):
    """Static quantisation by onnxruntime, as pairs of QuantizeLinear and DequantizeLinear."""

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
        from rivals.edge.onnx import Runtime

        images = spread(options.calibration, IMAGES)
        plain = ticket_graph(ticket, options.raw_input)
        inputs = images if options.raw_input else ticket.preprocessing(images)
        wanted = ticket(images).argmax(1).numpy()
        best, most = None, -1.0
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            for number, kept in enumerate(ladder(plain)):
                stage = Path(folder) / f"{number}.onnx"
                model = quantise(plain, kept, inputs, stage)
                save(model, card(ticket, options), stage)
                runtime = Runtime(stage)
                batches = [runtime(some.numpy())[0] for some in torch.split(inputs, BATCH)]
                agreement = float((np.concatenate(batches).argmax(1) == wanted).mean())
                if agreement > most:
                    best, most = stage, agreement
                if agreement >= SURE:
                    break
            assert best is not None
            path.write_bytes(best.read_bytes())


def spread(images: Tensor, count: int) -> Tensor:
    """At most `count` of the images, evenly from first to last, so that every class is there."""
    if len(images) <= count:
        return images
    return images[np.linspace(0, len(images) - 1, count).round().astype(int)]


def ladder(model: ModelProto) -> Iterator[list[str]]:
    """Names of nodes that keep float weights: none, the head, the first layer and the head."""
    layers = [node.name for node in model.graph.node if node.op_type in WEIGHTED]
    yield []
    yield layers[-1:]
    yield [layers[0], layers[-1]]


def quantise(model: ModelProto, kept: list[str], inputs: Tensor, stage: Path) -> ModelProto:
    """`model` in 8 bits but for the nodes named in `kept`."""
    import onnx
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter(torch.split(inputs, BATCH))

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self.batches, None)
            return None if batch is None else {INPUT: batch.numpy()}

    with silence():
        quantize_static(
            onnx.shape_inference.infer_shapes(model),
            str(stage),
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(QUANTISED),
            nodes_to_exclude=kept,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
        )
    return slim(float_scores(onnx.load(stage)))


def float_scores(model: ModelProto) -> ModelProto:
    """Leave the scores as the head computes them: in 256 steps two classes are often equal."""
    nodes = model.graph.node
    makers = {name: node for node in nodes for name in node.output}
    output = model.graph.output[0].name
    back = makers[output]
    if back.op_type != "DequantizeLinear" or back.input[0] not in makers:
        return model
    there = makers[back.input[0]]
    makers[there.input[0]].output[0] = output
    nodes.remove(there)
    nodes.remove(back)
    used = {name for node in nodes for name in node.input}
    stored = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(stored)
    return model


formats.register("onnx-int8")(Int8())
