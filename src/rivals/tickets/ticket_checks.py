"""What a ticket folder may hold: checked before memory is taken for it, or a network is built.

A problem is a ValueError, TypeError or LookupError, which `Ticket.load` turns into one sentence.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rivals.edge.card import check_preprocessing
from rivals.io.reading import UnreadableError, parse_json
from rivals.nn.plain_layers import Gradients

LAYERS = 2000
HEADER = 2**20  # bytes of the header of the weights
SIDE = 4096  # pixels, and size of a kernel
EXPONENT = 8  # of a power
VALUES = 2**23  # that a layer gives for one image, at most
Shape = tuple[int, ...]


def checked_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """The content of ticket.json, if it is complete and its numbers are possible."""
    texts(facts["task"], *facts["classes"])
    if not isinstance(facts["classes"], list) or not facts["classes"]:
        raise ValueError("there are no classes")
    shape = whole_numbers(facts["input_shape"], 1, SIDE)
    if len(shape) != 3 or math.prod(shape) > VALUES:
        raise ValueError("the shape of images is not possible")
    prepare = facts["preprocessing"]
    numbers([prepare["scale"], *prepare["mean"], *prepare["std"]])
    if len(prepare["mean"]) != len(prepare["std"]) or len(prepare["mean"]) not in (1, shape[0]):
        raise ValueError("a mean and a standard deviation for each channel were expected")
    check_preprocessing(prepare["scale"], prepare["mean"], prepare["std"])
    for winners in facts["winners"]:
        whole_numbers(winners, 0, 2**31)
    if facts["accuracy"] is not None:
        numbers([facts["accuracy"]])
    whole_numbers([facts[name] for name in ("weights", "bytes", "macs")], 0, 2**62)
    if not isinstance(facts["architecture"], list) or not 0 < len(facts["architecture"]) <= LAYERS:
        raise ValueError(f"between 1 and {LAYERS} layers were expected")
    return facts


def checked_tensors(data: bytes) -> bytes:
    """The bytes of a safetensors file, if its header is of a size that a ticket has."""
    length = int.from_bytes(data[:8], "little")
    if length > min(HEADER, len(data)):
        raise ValueError("the header of the weights is too long")
    try:
        header = parse_json(data[8 : 8 + length], "The header of the weights")
    except UnreadableError as error:
        raise ValueError("the header of the weights is not valid JSON") from error
    for name, entry in header.items():
        if name != "__metadata__":
            if entry["dtype"] != "F32":
                raise ValueError("weights are of another type than float32")
            whole_numbers(entry["shape"], 1, 2**31)
    return data


def texts(*values: Any) -> None:
    if not all(isinstance(value, str) for value in values):
        raise TypeError("a name is not text")


def numbers(values: list[Any]) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError("a value is not a number")
        if not math.isfinite(value):
            raise ValueError("a number is not finite")


def whole_numbers(values: Any, least: int, most: int) -> list[int]:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a number is not whole, or not between {least} and {most}")
    return list(values)


def layer_shape(node: dict[str, Any], tensors: dict[str, Tensor], inputs: list[Shape]) -> Shape:
    """The shape that a layer gives for one image, computed without running it."""
    word, name, shape = node["op"], node["name"], inputs[0]
    if len(inputs) != (2 if word == "add" else 1):
        raise ValueError(f"the layer {word} has {len(inputs)} inputs")
    if word == "add" and inputs[0] != inputs[1]:
        raise ValueError("the parts of a sum differ in shape")
    if word in ("conv2d", "linear"):
        weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
        if not bool(torch.isfinite(weight).all()) or (
            bias is not None and not bool(torch.isfinite(bias).all())
        ):
            raise ValueError("a weight is not finite")
        if weight.dim() != (4 if word == "conv2d" else 2) or len(shape) < 1:
            raise ValueError("the weights of a layer have another shape than it needs")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError("the biases of a layer have another shape than it needs")
    if word == "linear":
        if shape[-1] != weight.shape[1]:
            raise ValueError("a linear layer is given another number of values than it takes")
        shape = (*shape[:-1], weight.shape[0])
    elif word == "conv2d":
        rows, columns, kernel, other = weight.shape
        if kernel != other or len(shape) != 3 or shape[0] != columns:
            raise ValueError("a convolution is given another shape than it takes")
        stride, padding = whole_numbers([node["stride"]], 1, SIDE)[0], node["padding"]
        whole_numbers([padding], 0, kernel)
        shape = (rows, *(_out(side, kernel, stride, padding) for side in shape[1:]))
    elif word in ("max_pool", "avg_pool"):
        kernel, stride = whole_numbers([node["kernel_size"], node["stride"]], 1, SIDE)
        whole_numbers([node["padding"]], 0, kernel // 2)
        if len(shape) != 3:
            raise ValueError("pooling needs an image")
        shape = (shape[0], *(_out(side, kernel, stride, node["padding"]) for side in shape[1:]))
    elif word == "global_pool":
        if len(shape) != 3:
            raise ValueError("pooling needs an image")
        shape = (shape[0], 1, 1)
    elif word == "resize":
        if len(shape) != 3:
            raise ValueError("only an image can be resized")
        shape = (shape[0], *whole_numbers([node["side"]], 1, SIDE) * 2)
    elif word == "timm":
        texts(node["architecture"])
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise ValueError("a backbone needs a picture")
        whole_numbers([node["side"]], 1, SIDE)
        if not all(bool(torch.isfinite(t).all()) for t in stem_tensors(name, tensors).values()):
            raise ValueError("a weight is not finite")
        shape = (whole_numbers([node["features"]], 1, VALUES)[0],)
    elif word == "power":
        numbers([node["exponent"]])
        if not 0 < node["exponent"] <= EXPONENT:
            raise ValueError(f"an exponent is not above 0 and at most {EXPONENT}")
    elif word == "gradients":
        (cell,) = whole_numbers([node["cell"]], 1, SIDE)
        if len(shape) != 3:
            raise ValueError("only an image has gradients")
        sides = [side - Gradients.LEAST + 1 for side in shape[1:]]
        if min(sides) < 1 or Gradients.DIRECTIONS * math.prod(sides) > VALUES:
            raise ValueError("an image is too small for gradients, or too large")
        grid = (_out(side, 2 * cell, cell, cell // 2 + 1) for side in sides)
        shape = (Gradients.DIRECTIONS, *grid)
    elif word == "flatten":
        shape = (math.prod(shape),)
    if not 0 < math.prod(shape) <= VALUES:
        raise ValueError("a layer gives nothing, or more than any ticket")
    return shape


def stem_tensors(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the stem that the layer `name` is, as the stem calls them."""
    prefix = f"{name}.network."
    found = {key: tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    return {key.removeprefix(prefix): tensor for key, tensor in found.items()}


def _out(side: int, kernel: int, stride: int, padding: int) -> int:
    return max(0, (side + 2 * padding - kernel) // stride + 1)
