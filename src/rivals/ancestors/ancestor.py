"""An ancestor: a network trained before all tasks, which owns unit 0 of every block of a model.

    tiny.safetensors    layer0.weight, layer0.norm.scale …, and the covariance of its features
    tiny.json           its card: shape, data, accuracy, the command that made it, a checksum

`tiny` and `small` come with the package. A model names them by the checksum and does not store
them. Those that users make (making.py) also say how pictures are prepared for them, `input.mean`
and `input.std`; model/ancestor_file.py reads them, and a model keeps a copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rivals.ancestors.shipped_file import LUMINANCE, PREPARED, shipped_file
from rivals.errors import RivalsError
from rivals.naming.feature_space import FeatureSpace, shipped_space
from rivals.nn.network_plan import NetworkSettings
from rivals.nn.rival_network import RivalNetwork
from rivals.nn.task_norm import NormState
from rivals.nn.twta_layers import TWTALayer
from rivals.streams.preprocessing import Preprocessing, as_ancestor


@dataclass(frozen=True)
class Ancestor:
    """A trained body without a head, and what is known of it."""

    name: str
    sha256: str  # of its file
    architecture: str
    widths: tuple[int, ...]  # of its layers
    tensors: dict[str, Tensor]
    card: dict[str, Any]
    data: bytes = field(default=b"", repr=False)  # its file, which a model copies; none if shipped

    @property
    def within(self) -> Tensor:
        """(d, d): the covariance of its features around the means of classes."""
        return whole_covariance(self.tensors["within"])

    @property
    def space(self) -> FeatureSpace | None:
        """What is usual in the features of one that is shipped."""
        return None if self.data else shipped_space(self.name)

    @property
    def channels(self) -> int:
        """Of the pictures that it was trained on."""
        return len(self.tensors[PREPARED[0]]) if PREPARED[0] in self.tensors else 3

    @property
    def side(self) -> int | None:
        """Pixels a side of these pictures, where it was trained on one size."""
        return self.card["input_shape"][1] if "input_shape" in self.card else None

    def preparation(self, channels: int) -> Preprocessing | None:
        """How bytes are prepared for it; None: as for models without ancestor."""
        return preparation_of(self.tensors, channels) if PREPARED[0] in self.tensors else None

    def network(self, rivals: int) -> NetworkSettings:
        """The network whose tickets have the shape of the ancestor, `rivals` units in a block."""
        widths = tuple(width * rivals for width in self.widths)
        return NetworkSettings(architecture=self.architecture, widths=widths, units=rivals)

    def misfit(self, network: RivalNetwork) -> str:
        """The first of its tensors that a network has no place for, or misses; else nothing."""
        wanted: dict[str, tuple[int, ...]] = {"within": (network.features,) * 2}
        if self.tensors["within"].dim() == 1:
            wanted["within"] = (network.features * (network.features + 1) // 2,)
        for number, layer in enumerate(network.layers()):
            rows, columns, taps = ticket_shape(layer)
            if layer.source is None:
                columns = columns // network.input_shape[0] * self.channels
            wanted[f"layer{number}.weight"] = rows, columns, taps
            wanted |= {f"layer{number}.norm.{name}": (rows,) for name in NormState.NAMES}
        if PREPARED[0] in self.tensors:
            wanted |= dict.fromkeys(PREPARED, (self.channels,))
        found = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        return next((n for n in {**wanted, **found} if found.get(n) != wanted.get(n)), "")

    def give_to(self, network: RivalNetwork) -> None:
        """Let the ancestor own unit 0 of every block of a network without tasks."""
        network.adopt(*self.layers_for(network), self.within, self.space)

    def layers_for(self, network: RivalNetwork) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """Weights and norms, layer by layer, for the pictures of a network."""
        weights, norms = [], []
        for number, layer in enumerate(network.layers()):
            values = self.tensors[f"layer{number}.weight"].float()
            if layer.source is None:
                values = recoloured(values, self.channels, network.input_shape[0])
            weights.append(values)
            names = NormState.NAMES
            norms.append({name: self.tensors[f"layer{number}.norm.{name}"] for name in names})
        return weights, norms


def preparation_of(tensors: Mapping[str, Tensor], channels: int) -> Preprocessing:
    """How the tensors of an ancestor say that bytes are prepared."""
    mean, std = (tensors[name].double().tolist() for name in PREPARED)
    return as_ancestor(mean, std, channels)


def whole_covariance(stored: Tensor) -> Tensor:
    """(d, d), of which one half may be stored: the rows of the upper triangle, one by one."""
    half = stored.float()
    if half.dim() == 2:
        return half
    width = width_of(len(half))
    whole = torch.empty(width, width)
    rows, columns = torch.triu_indices(width, width)
    whole[rows, columns] = half
    whole[columns, rows] = half
    return whole


def width_of(numbers: int) -> int:
    """The width of a symmetric matrix, one half of which has so many numbers."""
    return (math.isqrt(8 * numbers + 1) - 1) // 2


def ticket_shape(layer: TWTALayer) -> tuple[int, int, int]:
    """Of the weights of a layer that a ticket has: (row blocks, column blocks or inputs, taps)."""
    columns = layer.source.blocks if layer.source else layer.weight.columns
    return layer.rivals.blocks, columns, layer.weight.taps


def recoloured(weight: Tensor, before: int, after: int) -> Tensor:
    """The weight (rows, inputs, taps) of a layer that reads pictures, for other channels.

    A grey picture has three equal channels; of a coloured one a grey network sees the luminance.
    """
    rows, inputs, taps = weight.shape
    each = weight.view(rows, before, inputs // before, taps)
    if before > after:
        each = each.sum(1, keepdim=True)
    elif before < after:
        each = each * torch.tensor(LUMINANCE).view(1, -1, 1, 1)
    return each.flatten(1, 2)


@cache
def shipped(name: str) -> Ancestor:
    """One of the ancestors that come with the package."""
    facts, data = shipped_file(name)
    try:
        tensors = safetensors.torch.load(data)
        widths = tuple(int(width) for width in facts["widths"])
        architecture = str(facts["architecture"])
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError) as error:
        raise RivalsError(f"The ancestor '{name}' is damaged ({type(error).__name__}).") from error
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise RivalsError(f"The ancestor '{name}' is damaged: it has numbers that are not finite.")
    return Ancestor(name, facts["sha256"], architecture, widths, tensors, facts)
