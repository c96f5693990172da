"""An ancestor: a network trained before all tasks, which owns unit 0 of every block of a model.

    tiny.safetensors    layer0.weight, layer0.norm.scale …, and the covariance of its features
    tiny.json           its card: shape, data, accuracy, the command that made it, a checksum

`tiny` and `small` come with the package. A model names its ancestor by the checksum and does not
store it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rivals.ancestors import SHIPPED
from rivals.errors import RivalsError, unknown
from rivals.io.files import digest
from rivals.io.reading import read_bytes, read_json
from rivals.nn.network_plan import NetworkSettings
from rivals.nn.rival_network import RivalNetwork
from rivals.nn.task_norm import NormState

PLACE = Path(__file__).parent
LARGEST = 64 * 2**20  # bytes of an ancestor
ARCHITECTURE, LAYERS = "conv-small", 8  # that an ancestor has, and how many at most
COLOURS, TAPS = 3, 9  # channels of a picture, and weights of a kernel


@dataclass(frozen=True)
class Ancestor:
    """A trained body without a head, and what is known of it."""

    name: str
    sha256: str  # of its file
    architecture: str
    widths: tuple[int, ...]  # of its layers
    tensors: dict[str, Tensor]
    card: dict[str, Any]

    @property
    def within(self) -> Tensor:
        """(d, d): the covariance of its features around the means of classes."""
        return self.tensors["within"].float()

    @property
    def smallest_side(self) -> int:
        """Pixels a side of the smallest picture: each layer but the last halves it."""
        return int(2 ** (len(self.widths) - 1))

    def network(self, rivals: int) -> NetworkSettings:
        """The network whose tickets have the shape of the ancestor, `rivals` units in a block."""
        widths = tuple(width * rivals for width in self.widths)
        return NetworkSettings(architecture=self.architecture, widths=widths, units=rivals)

    def give_to(self, network: RivalNetwork) -> None:
        """Let the ancestor own unit 0 of every block of a network without tasks."""
        count = range(len(network.layers()))
        weights = [self.tensors[f"layer{number}.weight"].float() for number in count]
        if network.input_shape[0] == 1:  # a grey picture has three equal channels
            weights[0] = weights[0].sum(1, keepdim=True)
        names = NormState.NAMES
        norms = [{name: self.tensors[f"layer{n}.norm.{name}"] for name in names} for n in count]
        network.adopt(weights, norms)


@cache
def shipped(name: str) -> Ancestor:
    """One of the ancestors that come with the package."""
    if name not in SHIPPED:
        raise unknown("ancestor", name, SHIPPED)
    return _read(PLACE / f"{name}.safetensors", PLACE / f"{name}.json", name)


def _read(file: Path, card: Path, name: str) -> Ancestor:
    facts = read_json(card, "card of an ancestor")
    data = read_bytes(file, "ancestor", LARGEST)
    if digest(data) != facts.get("sha256"):
        raise RivalsError(
            f"The ancestor {file} is not the one that {card} describes; bring back both files."
        )
    try:
        tensors = safetensors.torch.load(data)
        widths = tuple(int(width) for width in facts["widths"])
        architecture = str(facts["architecture"])
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError) as error:
        raise RivalsError(f"The ancestor {file} is damaged ({type(error).__name__}).") from error
    if architecture != ARCHITECTURE or not 1 <= len(widths) <= LAYERS or min(widths) < 1:
        raise RivalsError(f"The card {card} describes no ancestor; bring back the original.")
    if problem := _misfit(tensors, widths):
        raise RivalsError(f"The ancestor {file} is damaged: {problem} does not fit its card.")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise RivalsError(f"The ancestor {file} is damaged: it has numbers that are not finite.")
    return Ancestor(name, facts["sha256"], architecture, widths, tensors, facts)


def _misfit(tensors: dict[str, Tensor], widths: tuple[int, ...]) -> str:
    """The first tensor that is missing, or not of the shape that the card says; else nothing."""
    wanted: dict[str, tuple[int, ...]] = {"within": (widths[-1], widths[-1])}
    for number, (before, width) in enumerate(zip((COLOURS, *widths), widths, strict=False)):
        wanted[f"layer{number}.weight"] = width, before, TAPS
        wanted |= {f"layer{number}.norm.{name}": (width,) for name in NormState.NAMES}
    for name, shape in wanted.items():
        found = tensors.get(name)
        if found is None or tuple(found.shape) != shape or not found.is_floating_point():
            return name
    return ""
