"""The file of a task: winners, claimed edges, norms, head, and what it takes to know its pictures.

It is named by its content. Names, types and shapes of its tensors are compared with what the
network expects before they are loaded.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rivals.io.files import digest
from rivals.model.manifest import TaskFacts, damaged
from rivals.naming.familiarity import LEVELS
from rivals.naming.gaussian import DIRECTIONS
from rivals.naming.scores import SIDE
from rivals.nn.rival_network import RivalNetwork
from rivals.nn.task_norm import NormState

FOLDER = "tasks"
BITS = [str(bits) for bits in range(1, 33)]  # that a winner may take
CLAIMED = ("F16", "F32")  # types of claimed weights; F32 is how they were kept at first
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # by name: type and shape


def encode(tensors: dict[str, Tensor]) -> tuple[str, str, bytes]:
    """The name of a task's file, its checksum and its bytes."""
    whole = torch.contiguous_format
    own = {key: value.detach().clone(memory_format=whole) for key, value in tensors.items()}
    data = safetensors.torch.save(own)
    checksum = digest(data)
    return f"{checksum[:16]}.safetensors", checksum, data


def read(model: Path, facts: TaskFacts, network: RivalNetwork) -> dict[str, Tensor]:
    """The checked tensors of a task."""
    data = _bytes(model, facts)
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        found = {
            name: (str(entry["dtype"]), tuple(entry["shape"]))
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(model, f"the file of '{facts.name}' holds no tensors") from error
    problem = misfit(found, network, len(facts.classes))
    if problem:
        raise damaged(model, f"the file of '{facts.name}' does not fit its network at {problem}")
    try:
        tensors = safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, RuntimeError) as error:
        raise damaged(model, f"the file of '{facts.name}' holds no tensors") from error
    for tensor in tensors.values():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise damaged(model, f"the file of '{facts.name}' has numbers that are not finite")
    # Copied: what is read from a file may lie unaligned, and then sums can differ.
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _bytes(model: Path, facts: TaskFacts) -> bytes:
    """The file, if it is as long as it should be and has the stated checksum."""
    path = model / FOLDER / facts.file
    try:
        with path.open("rb") as file:
            data = file.read(facts.bytes + 1)
    except OSError as error:
        reason = f"the file of '{facts.name}' cannot be read ({error.strerror})"
        raise damaged(model, reason) from error
    if len(data) != facts.bytes or digest(data) != facts.sha256:
        raise damaged(model, f"the file of '{facts.name}' is not the one that was written")
    return data


def misfit(found: Shapes, network: RivalNetwork, classes: int) -> str:
    """The first tensor that is not of the type and shape that the network needs; else nothing."""
    wanted = expected(network, classes)
    for number, rivals in enumerate(network.rivals()):
        prefix = f"rivals{number}.winners."
        names = [name for name in found if name.startswith(prefix)]
        bits = names[0].removeprefix(prefix) if len(names) == 1 else ""
        if bits not in BITS:
            return prefix[:-1]
        wanted[names[0]] = "U8", (math.ceil(rivals.blocks * int(bits) / 8),)
    for number, layer in enumerate(network.layers()):
        name = f"layer{number}.claimed"
        kind, shape = found.get(name, ("", ()))
        columns = layer.source.blocks if layer.source else layer.weight.columns
        most = layer.rivals.blocks * columns
        if kind not in CLAIMED or len(shape) != 2 or not 0 <= shape[0] <= most:
            return name
        wanted[name] = kind, (shape[0], layer.weight.taps)
    differing = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    return differing[0][:80] if differing else ""


def expected(network: RivalNetwork, classes: int) -> Shapes:
    """What every task's file has, winners and claims aside."""
    channels, height, width = network.input_shape
    dimensions = channels * min(SIDE, height) * min(SIDE, width)
    directions = min(DIRECTIONS, dimensions - 1)
    end = network.end.blocks if network.end else network.features
    along = min(DIRECTIONS, network.positions * end - 1)
    shapes: Shapes = {
        "head.weight": ("F32", (classes, end, network.positions)),
        "head.bias": ("F32", (classes,)),
        "kept.means": ("F32", (1, dimensions)),
        "kept.directions": ("F32", (dimensions, directions)),
        "kept.variances": ("F32", (directions,)),
        "kept.rest": ("F32", (1,)),
        "features.means": ("F32", (classes, network.positions * end)),
        "features.directions": ("F32", (network.positions * end, along)),
        "features.variances": ("F32", (along,)),
        "features.rest": ("F32", (1,)),
        "levels": ("F32", (LEVELS,)),
    }
    for number, layer in enumerate(network.layers()):
        for name in NormState.NAMES:
            shapes[f"layer{number}.norm.{name}"] = "F32", (layer.rivals.blocks,)
        shapes[f"layer{number}.norm.batches"] = "F32", ()
    return shapes
