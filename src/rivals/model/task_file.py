"""The file of a task: winners, claimed edges, norms, head, and what it takes to know its pictures.

It is named by its content. Names, types and shapes of its tensors are compared with what the
network expects before they are loaded, and its size before it is read.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rivals.io.files import digest
from rivals.model import limits
from rivals.model.manifest import MovedEdges, TaskFacts, damaged, file_name
from rivals.model.moved_edges import INDEX, cell_count
from rivals.model.stored_file import Shapes, check_version, in_words, read_stored, shapes_of
from rivals.naming.discriminant import MOST_IN_COVARIANCE
from rivals.naming.familiarity import LEVELS
from rivals.naming.gaussian import DIRECTIONS
from rivals.naming.scores import SIDE
from rivals.naming.task_statistics import EVERY_STATISTIC, stored_statistics
from rivals.nn import filter_bank
from rivals.nn.rival_network import RivalNetwork
from rivals.nn.task_norm import NormState
from rivals.nn.task_tensors import DIRECT

BITS = [str(bits) for bits in range(1, 33)]  # that a winner may take
CLAIMED = ("F16", "F32")  # types of claimed weights; F32 is how they were kept at first


def encode(tensors: dict[str, Tensor]) -> tuple[str, str, bytes]:
    """The name of a task's file, its checksum and its bytes."""
    whole = torch.contiguous_format
    own = {key: value.detach().clone(memory_format=whole) for key, value in tensors.items()}
    data = safetensors.torch.save(own)
    checksum = digest(data)
    return file_name(checksum), checksum, data


def read(model: Path, facts: TaskFacts, network: RivalNetwork) -> dict[str, Tensor]:
    """The checked tensors of a task."""
    what = f"the file of '{facts.name}'"
    if facts.bytes > largest(network, len(facts.classes)):
        raise damaged(model, f"{what} is larger than its network allows")
    data = read_stored(model, facts.file, facts.sha256, facts.bytes, what)
    with in_words(model, what):
        shapes = shapes_of(data)
        check_version(model, facts.name, shapes)
        problem = misfit(shapes, network, len(facts.classes))
        if problem:
            raise ValueError(f"does not fit its network at {problem}")
        return tensors_of(data)


def read_moved(
    model: Path, moved: MovedEdges, network: RivalNetwork, tasks: int
) -> dict[str, Tensor]:
    """The checked tensors of the file with the edges that moved to one of so many `tasks`."""
    what = "the file of moved edges"
    each = (cell_count(layer) * (2 * layer.weight.taps + INDEX) for layer in network.layers())
    most = tasks * sum(each)
    if moved.bytes > 8 + limits.HEADER + most:
        raise damaged(model, f"{what} is larger than its network allows")
    data = read_stored(model, moved.file, moved.sha256, moved.bytes, what)
    with in_words(model, what):
        found, wanted = shapes_of(data), dict[str, tuple[str, tuple[int, ...]]]()
        for number, layer in enumerate(network.layers()):
            counts = {
                name: found.get(f"layer{number}.{name}", ("", ()))[1][:1]
                for name in ("owners", "cells", "values")
            }
            wanted[f"layer{number}.owners"] = "I16", counts["owners"]
            wanted[f"layer{number}.cells"] = "U8", counts["cells"]
            wanted[f"layer{number}.values"] = "F16", (*counts["values"], layer.weight.taps)
        if found != wanted:
            raise ValueError("does not fit its network")
        return tensors_of(data)


def tensors_of(data: bytes) -> dict[str, Tensor]:
    """The tensors in a file, whose numbers are finite; a ValueError is its damage."""
    try:
        tensors = safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, RuntimeError) as error:
        raise ValueError("holds no tensors") from error
    for tensor in tensors.values():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError("has numbers that are not finite")
    # Copied: what is read from a file may lie unaligned, and then sums can differ.
    return {name: tensor.clone() for name, tensor in tensors.items()}


def misfit(found: Shapes, network: RivalNetwork, classes: int) -> str:
    """The first tensor that is not of the type and shape that the network needs; else nothing."""
    direct = 0
    if (name := f"{DIRECT}weight") in found:
        widths = network.direct_widths.values()
        fitting = (width for width in widths if found[name] == ("F32", (classes, width, 1)))
        direct = next(fitting, max(widths))
    by_pixels = not network.shares_features and "kept.rest" in found
    wanted = expected(network, classes, direct, by_pixels)
    if not by_pixels:
        wanted |= statistics(network, classes, found)
    if network.shares_features and "kept.prior" in found:
        wanted = statistics(network, classes, found)
        wanted["levels"] = "F32", (LEVELS,)
        return _differing(found, wanted)
    for number, rivals in enumerate([] if direct else network.rivals()):
        prefix = f"rivals{number}.winners."
        names = [name for name in found if name.startswith(prefix)]
        bits = names[0].removeprefix(prefix) if len(names) == 1 else ""
        if bits not in BITS:
            return prefix[:-1]
        wanted[names[0]] = "U8", (math.ceil(rivals.blocks * int(bits) / 8),)
    for number, layer in enumerate([] if direct else network.layers()):
        name = f"layer{number}.claimed"
        kind, shape = found.get(name, ("", ()))
        if kind not in CLAIMED or len(shape) != 2 or type(shape[0]) is not int:
            return name
        if not 0 <= shape[0] <= cell_count(layer):
            return name
        wanted[name] = kind, (shape[0], layer.weight.taps)
    return _differing(found, wanted)


def _differing(found: Shapes, wanted: Shapes) -> str:
    differing = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    return differing[0][:80] if differing else ""


def statistics(network: RivalNetwork, classes: int, found: Collection[str]) -> Shapes:
    """What is kept of a task's shared features, to name it and for a closed form.

    They are those of the ancestor, or of the filter bank. A covariance of very many would take
    more than it is worth.
    """
    if not network.shares_features:
        names = [name for name in found if name != "kept.prior"]
        return stored_statistics(filter_bank.WIDTH, classes, names, rooted=True)
    few = network.stem is None or network.shared_width <= MOST_IN_COVARIANCE
    return stored_statistics(
        network.shared_width, classes, found, network.space.rooted, covariance=few
    )


def largest(network: RivalNetwork, classes: int) -> int:
    """The most bytes that the file of a task with so many classes can have."""
    kinds = [
        expected(network, classes, width, by_pixels=not network.shares_features)
        | statistics(network, classes, EVERY_STATISTIC)
        for width in (0, *network.direct_widths.values())
    ]
    numbers = max(sum(math.prod(shape) for _, shape in kind.values()) for kind in kinds)
    numbers += sum(cell_count(layer) * layer.weight.taps for layer in network.layers())
    winners = sum(rivals.blocks for rivals in network.rivals())
    return 8 + limits.HEADER + 4 * (numbers + winners)


def expected(network: RivalNetwork, classes: int, direct: int, by_pixels: bool = False) -> Shapes:
    """What the file of every task has, winners and claims aside.

    `direct` is the width of what a direct task reads, 0 for tasks with a body. `by_pixels` says
    that the task is named by the density of its pictures made small.
    """
    channels, height, width = network.input_shape
    dimensions = channels * min(SIDE, height) * min(SIDE, width)
    directions = min(DIRECTIONS, dimensions - 1)
    end = network.end.blocks if network.end else network.features
    head, positions = "head.", network.positions
    if direct:
        head, end, positions = DIRECT, direct, 1
    along = min(DIRECTIONS, positions * end - 1)
    shapes: Shapes = {
        f"{head}weight": ("F32", (classes, end, positions)),
        f"{head}bias": ("F32", (classes,)),
        "features.means": ("F32", (classes, positions * end)),
        "features.directions": ("F32", (positions * end, along)),
        "features.variances": ("F32", (along,)),
        "features.rest": ("F32", (1,)),
        "levels": ("F32", (LEVELS,)),
    }
    if by_pixels:  # as rivals 0.1 named tasks without an ancestor
        shapes |= {
            "kept.means": ("F32", (1, dimensions)),
            "kept.directions": ("F32", (dimensions, directions)),
            "kept.variances": ("F32", (directions,)),
            "kept.rest": ("F32", (1,)),
        }
    for number, layer in enumerate([] if direct else network.layers()):
        for name in NormState.NAMES:
            shapes[f"layer{number}.norm.{name}"] = "F32", (layer.rivals.blocks,)
        shapes[f"layer{number}.norm.batches"] = "F32", ()
    return shapes
