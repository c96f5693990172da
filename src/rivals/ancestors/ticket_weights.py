"""The body of a ticket as the layers of its network: weights (rows, columns, taps) and norms.

A network of rivals still has the norms of a task. A ticket has them folded into its weights: then
the weights are as folded, and the norm changes nothing but adds the bias. Which network a ticket
was cut from, and of which widths, is guessed from its layers; a guess is right if a network built
so has the same cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from rivals.ancestors.ancestor import ticket_shape
from rivals.errors import RivalsError
from rivals.nn.activations import Activations
from rivals.nn.cut import Cutter
from rivals.nn.dense_network import DenseNetwork
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.rival_network import RivalNetwork
from rivals.nn.selection import Wiring
from rivals.nn.task_norm import EPSILON, NormState
from rivals.seeds import Seed
from rivals.tickets.graph_words import describe

Shape = tuple[int, int, int]
Size = tuple[int, ...]  # of a weight


@dataclass(frozen=True)
class BodyWeights:
    """For each layer its weight (rows, columns, taps), and scale, shift, mean and variance."""

    weights: list[Tensor]
    norms: list[dict[str, Tensor]]

    def tensors(self) -> dict[str, Tensor]:
        """By the names that they have in the file of an ancestor."""
        found = {f"layer{number}.weight": each for number, each in enumerate(self.weights)}
        for number, norm in enumerate(self.norms):
            found |= {f"layer{number}.norm.{name}": norm[name] for name in NormState.NAMES}
        return found


def of_network(network: RivalNetwork, task: str) -> BodyWeights:
    """What a network of rivals has of a task that it learned."""
    weights, norms = [], []
    for layer in network.layers():
        state = layer.norm.state(task)
        weights.append(network.ticket_slice(layer, task).cpu())
        norm = {name: tensor.cpu() for name, tensor in state.tensors().items()}
        norms.append(norm if layer.norm.kind == "batch" else only_shift(norm["shift"]))
    return BodyWeights(weights, norms)


def of_ticket(ticket: fx.GraphModule, settings: NetworkSettings, shape: Shape) -> BodyWeights:
    """What a ticket has, in the order of the layers of its network, which `settings` describe."""
    dense, plain = cut_body(settings, shape)
    rivals = NetworkPlan(settings, shape).rivals(Seed(0))
    weights, norms = [], []
    for layer, same in zip(rivals.layers(), dense.weights(), strict=True):
        # Layers and cut differ in their order; untrained weights are all different.
        name = next(name for name, each in layers_of(plain) if torch.equal(each.weight, same))
        found = ticket.get_submodule(name)
        assert isinstance(found, nn.Conv2d | nn.Linear)
        weights.append(found.weight.detach().reshape(ticket_shape(layer)))
        bias = torch.zeros(len(found.weight)) if found.bias is None else found.bias.detach()
        norms.append(only_shift(bias))
    return BodyWeights(weights, norms)


def only_shift(shift: Tensor) -> dict[str, Tensor]:
    """A norm that adds `shift` and changes nothing else."""
    one = torch.ones_like(shift)
    return {"scale": one, "shift": shift, "mean": 0 * one, "var": one - EPSILON}


def recognise(ticket: fx.GraphModule, shape: Shape, names: Iterable[str]) -> NetworkSettings | None:
    """The network, of those with these `names`, that has the layers of a ticket; its widths."""
    nodes, sizes = describe(ticket)[:-1], _sizes(ticket)[:-1]  # the head aside
    for name in names:
        for widths in dict.fromkeys(guesses(nodes, sizes)):
            settings = NetworkSettings(architecture=name, widths=widths, units=1)
            try:
                _, plain = cut_body(settings, shape)
            except (RivalsError, RuntimeError):  # it takes other widths, or larger pictures
                continue
            if describe(plain) == nodes and _sizes(plain) == sizes:
                return settings
    return None


def guesses(nodes: list[dict[str, Any]], sizes: list[Size]) -> Iterator[tuple[int, ...]]:
    """Widths that a network with these nodes, and layers of these sizes, may have."""
    rows = [size[0] for size in sizes]
    yield tuple(rows)  # layer after layer
    shortcuts = (size[0] for size in sizes if len(size) == 4 and size[2] == 1)
    yield *rows[:1], *shortcuts  # a stem, then a stage of residual blocks for each
    # A stem; of each block the width of its stage, which may begin with a layer, and its own.
    found, since, left = rows[:1], list[int](), iter(rows)
    for node in nodes:
        if node["op"] in ("conv2d", "linear"):
            since.append(next(left))
        elif node["op"] == "add" and len(since) > 1:
            found += [since[-1], since[-2]]
            since = []
    yield *found, *since


def _sizes(plain: fx.GraphModule) -> list[Size]:
    return [tuple(each.weight.shape) for _, each in layers_of(plain)]


def cut_body(settings: NetworkSettings, shape: Shape) -> tuple[DenseNetwork, fx.GraphModule]:
    """An untrained network of ordinary layers, and its body as a ticket has it."""
    network = NetworkPlan(settings, shape).dense(Seed(0))
    cutter = Cutter()
    with torch.no_grad():
        end = network.body(Activations(cutter.input(), "", Wiring("")))
    return network, cutter.finish(end.values)


def layers_of(plain: fx.GraphModule) -> list[tuple[str, nn.Conv2d | nn.Linear]]:
    """The layers with weights in the order of the forward pass."""
    return [
        (name, each)
        for name, each in plain.named_modules()
        if isinstance(each, nn.Conv2d | nn.Linear)
    ]
