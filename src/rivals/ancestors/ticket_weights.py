"""The body of a ticket as the layers of its network: weights (rows, columns, taps) and norms.

A network of rivals still has the norms of a task. A ticket has them folded into its weights: then
the weights are as folded, and the norm changes nothing but adds the bias. Which network a ticket
was cut from is found out by cutting others: with a prime number for each width, the layers of a cut
show which width they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

PRIMES = (11, 13, 17, 19, 23, 29, 31, 37)  # as many as a network has widths, at most
Shape = tuple[int, int, int]


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
    nodes = describe(ticket)[:-1]  # the head aside
    rows = [len(each.weight) for _, each in layers_of(ticket)][:-1]
    for name in names:
        for count in range(1, len(PRIMES) + 1):
            found = _widths(name, PRIMES[:count], shape, nodes, rows)
            if found is not None:
                settings = NetworkSettings(architecture=name, widths=found, units=1)
                _, plain = cut_body(settings, shape)
                pairs = zip(layers_of(plain), layers_of(ticket), strict=False)
                if all(one.weight.shape == other.weight.shape for (_, one), (_, other) in pairs):
                    return settings
    return None


def _widths(
    name: str, primes: Sequence[int], shape: Shape, nodes: list[dict[str, object]], rows: list[int]
) -> tuple[int, ...] | None:
    """The widths with which a network has layers of so many `rows`; None: it has other layers."""
    try:
        _, plain = cut_body(NetworkSettings(architecture=name, widths=primes, units=1), shape)
    except (RivalsError, RuntimeError):  # another number of widths; larger pictures
        return None
    if describe(plain) != nodes:
        return None
    widths: dict[int, int] = {}
    for (_, layer), count in zip(layers_of(plain), rows, strict=True):
        prime = next((each for each in primes if len(layer.weight) % each == 0), 0)
        if not prime or count * prime % len(layer.weight):
            return None
        widths.setdefault(prime, count * prime // len(layer.weight))
    return tuple(widths[prime] for prime in primes) if len(widths) == len(primes) else None


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
