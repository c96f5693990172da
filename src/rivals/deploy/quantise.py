"""A graph in 8 bits by onnxruntime: static, as pairs of QuantizeLinear and DequantizeLinear.

Weights have a scale for each output channel. Weights and activations are both signed: unsigned by
signed products may saturate on processors without 8-bit dot products.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rivals.deploy.prepared import INPUT, OF_GRADIENTS, silence, slim

if TYPE_CHECKING:
    from onnx import ModelProto

BATCH = 64
WEIGHTED = ("Conv", "Gemm", "MatMul")
QUANTISED = (*WEIGHTED, "MaxPool", "Relu", "Add", "Reshape", "GlobalAveragePool", "Flatten")


def layers(model: ModelProto) -> dict[str, int]:
    """The nodes that have weights, by name, with the number of their weights."""
    sizes = {tensor.name: _numbers(tensor.dims) for tensor in model.graph.initializer}
    return {
        node.name: sum(sizes.get(name, 0) for name in node.input)
        for node in model.graph.node
        if node.op_type in WEIGHTED and not node.name.startswith(OF_GRADIENTS)
    }


def quantise(model: ModelProto, kept: Collection[str], inputs: Tensor, stage: Path) -> ModelProto:
    """The model with 8-bit nodes, except those in `kept`; `inputs` show the ranges of values."""
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

    # What is divided by the strength around it needs more than 256 steps.
    gradients = [n.name for n in model.graph.node if n.name.startswith(OF_GRADIENTS)]
    with silence():
        quantize_static(
            onnx.shape_inference.infer_shapes(model),
            str(stage),
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(QUANTISED),
            nodes_to_exclude=[*kept, *gradients],
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


def _numbers(sizes: Collection[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count
