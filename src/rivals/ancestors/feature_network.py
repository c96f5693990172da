"""An ancestor as a frozen network: pictures in, features out, nothing to train."""

from __future__ import annotations

import torch
from torch import nn

from rivals.ancestors import ANCESTORS_SIDES, fitting_side
from rivals.ancestors.ancestor import shipped
from rivals.nn.cut import Cutter
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.plain_layers import Resize
from rivals.nn.rival_network import ANCESTOR
from rivals.seeds import Seed


@torch.no_grad()
def feature_network(ancestor: str, input_shape: tuple[int, int, int]) -> nn.Module:
    """The network of an ancestor, for pictures of `input_shape`; the only way to frozen features.

    Called with pictures (n, *input_shape) that `rivals.streams.task.centred` prepared, it gives
    features (n, d). Pictures are resized inside, as models with an ancestor do. It is a plain
    network (torch.fx), so tickets can hold it.

    >>> import torch
    >>> feature_network("tiny", (3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 160])
    """
    found = shipped(ancestor)
    channels, height, width = input_shape
    side = fitting_side(min(height, width), ANCESTORS_SIDES)
    network = NetworkPlan(found.network(1), (channels, side, side)).rivals(Seed(0))
    found.give_to(network)
    cutter = Cutter()
    images = cutter.input()
    if (height, width) != (side, side):
        images = cutter.emit(Resize(side), images)
    flow = network.learning(False).flow(images, ANCESTOR)
    return cutter.finish(flow.values).eval()
