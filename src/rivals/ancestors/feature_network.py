"""An ancestor as a frozen network: pictures in, features out, nothing to train."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import GraphModule

from rivals.ancestors import ANCESTORS_SIDES, fitting_side
from rivals.ancestors.ancestor import Ancestor, shipped
from rivals.ancestors.timm_backbone import find_backbone, is_backbone
from rivals.errors import RivalsError
from rivals.io.reading import printable
from rivals.nn.cut import Cutter
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.plain_layers import Resize
from rivals.nn.rival_network import ANCESTOR
from rivals.registry import allowed_imports
from rivals.seeds import Seed
from rivals.streams.task import Preprocessing, centred


@dataclass(frozen=True)
class FrozenNetwork:
    """What computes features, its name in results, and how it wants bytes to be prepared."""

    name: str
    network: nn.Module
    preparation: Preprocessing


@torch.no_grad()
def feature_network(
    ancestor: str, input_shape: tuple[int, int, int], side: int = 0
) -> FrozenNetwork:
    """The network of an ancestor, for pictures of `input_shape`; the only way to frozen features.

    Its `network` gives features (n, d) of pictures (n, *input_shape) that `preparation` prepared.
    They are resized inside, to `side` pixels or as models with this ancestor do. It is a plain
    network (torch.fx) or a stem, so tickets can hold it.

    >>> import torch
    >>> feature_network("tiny", (3, 32, 32)).network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 160])
    """
    channels, height, width = input_shape
    if is_backbone(ancestor):
        if ancestor not in allowed_imports():
            raise RivalsError(
                f"The ancestor '{printable(ancestor)}' comes from the hub or from a file beside, "
                "and settings in a folder alone cannot ask for that; if you trust them, add "
                f"--allow-import {printable(ancestor)}."
            )
        backbone = find_backbone(ancestor)
        stem = backbone.stem(side or backbone.side)
        return FrozenNetwork(backbone.name, stem, backbone.preparation(channels))
    side = side or fitting_side(min(height, width), ANCESTORS_SIDES)
    network = ancestor_graph(shipped(ancestor), (channels, height, width), side)
    return FrozenNetwork(ancestor, network, centred(channels))


@torch.no_grad()
def ancestor_graph(
    ancestor: Ancestor, input_shape: tuple[int, int, int], side: int = 0
) -> GraphModule:
    """The plain network of an ancestor: prepared pictures in, features out.

    Args:
        ancestor: Shipped with the package, or made by a user.
        input_shape: Of the pictures.
        side: What they are resized to first; 0: nothing, they are as the ancestor looks at them.
    """
    channels, height, width = input_shape
    looked = (side, side) if side else (height, width)
    network = NetworkPlan(ancestor.network(1), (channels, *looked)).rivals(Seed(0))
    ancestor.give_to(network)
    cutter = Cutter()
    images = cutter.input()
    if (height, width) != looked:
        images = cutter.emit(Resize(side), images)
    flow = network.learning(False).flow(images, ANCESTOR)
    return cutter.finish(flow.values).eval()
