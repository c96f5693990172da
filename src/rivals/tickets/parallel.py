"""All tickets of a model on the same images: those of one shape run as one stack.

A stack walks the graph of its first ticket with the weights of all of them. Convolutions become
grouped, one group a ticket, in `channels_last`; linear layers become batched products; pooling,
activations and sums treat every channel alone and stay as they are. Channels are ordered ticket by
ticket. The first layer reads one copy of the images, so a stack shares its preparation of pictures.
A stem goes before all stacks: it is computed once, for however many tasks.

    images (n, c, h, w) ─► (n, tickets · channels, h, w) ─► (tickets, n, features) ─► a head each

Heads that read the same features, those of an ancestor, share one body: it runs once for them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from rivals.nn.stem import Stem
from rivals.streams.task import Preprocessing
from rivals.tickets.graph_words import describe

TICKETS = 10  # of one stack at most, which is quickest, and
IMAGES = 64  # of one pass, so that memory does not follow the number of tasks


@dataclass(frozen=True)
class TicketOutput:
    """What a ticket makes of images: the features its head reads, and the scores of its classes."""

    features: Tensor  # (n, d)
    scores: Tensor  # (n, classes)


@dataclass(frozen=True)
class SharedBodyTicket:
    """A ticket that has only a head of its own; its features are those that `body` ends in."""

    body: nn.Module
    weight: Tensor  # (classes, d); no rows: only the features are wanted
    bias: Tensor  # (classes,)
    scaled: bool = False  # the body reads values from 0 to 1, however a task prepares pictures


AnyTicket = fx.GraphModule | SharedBodyTicket


class ParallelTickets:
    """Runs tickets on raw images at once; a reading for each, in the order in which they came."""

    def __init__(
        self, networks: Sequence[AnyTicket], preparations: Sequence[Preprocessing]
    ) -> None:
        shapes: dict[object, list[int]] = {}
        bodies: dict[tuple[int, Preprocessing], list[int]] = {}
        for number, (network, prepare) in enumerate(zip(networks, preparations, strict=True)):
            if isinstance(network, SharedBodyTicket):
                read = only_scaled(prepare) if network.scaled else prepare
                bodies.setdefault((id(network.body), read), []).append(number)
            else:
                shapes.setdefault(_shape(network, prepare), []).append(number)
        self.stacks: list[tuple[list[int], Preprocessing, TicketStack | SharedBody]] = [
            (members[i : i + TICKETS], preparations[members[0]],
             TicketStack([networks[m] for m in members[i : i + TICKETS]]))
            for members in shapes.values()
            for i in range(0, len(members), TICKETS)
        ]  # fmt: skip
        self.stacks += [
            (members, read, SharedBody([networks[m] for m in members]))
            for (_, read), members in bodies.items()
        ]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> list[TicketOutput]:
        """Readings of (n, channels, height, width) pixels as they are stored."""
        parts = [self.outputs(some) for some in torch.split(images, IMAGES)]
        if len(parts) == 1:
            return [parts[0][number] for number in sorted(parts[0])]
        whole: dict[int, Tensor] = {}  # features that many tickets share are put together once

        def together(tensors: list[Tensor]) -> Tensor:
            if id(tensors[0]) not in whole:
                whole[id(tensors[0])] = torch.cat(tensors)
            return whole[id(tensors[0])]

        return [
            TicketOutput(*(together([getattr(p[number], name) for p in parts]) for name in FIELDS))
            for number in sorted(parts[0])
        ]

    def outputs(self, images: Tensor) -> dict[int, TicketOutput]:
        """The reading of each ticket, all images going through at once."""
        found: dict[int, TicketOutput] = {}
        starts: dict[tuple[Stem | None, Preprocessing], Tensor] = {}  # what stacks begin with
        for members, prepare, stack in self.stacks:
            start = starts.get((stack.stem, prepare))
            if start is None:
                start = prepare(images).contiguous(memory_format=torch.channels_last)
                if stack.stem is not None:
                    start = stack.stem(start)[:, :, None, None]  # passes the stems of tickets
                starts[stack.stem, prepare] = start
            found.update(zip(members, stack.run(start), strict=True))
        return found


FIELDS = ("features", "scores")


class SharedBody:
    """Tickets with one body: it runs once, and one product gives the scores of all heads."""

    def __init__(self, tickets: Sequence[AnyTicket]) -> None:
        members = [ticket for ticket in tickets if isinstance(ticket, SharedBodyTicket)]
        self.body, self.stem = members[0].body, stem_of(members[0].body)
        self.weight = torch.cat([ticket.weight for ticket in members])
        self.bias = torch.cat([ticket.bias for ticket in members])
        self.sizes = [len(ticket.bias) for ticket in members]

    def run(self, images: Tensor) -> list[TicketOutput]:
        features = self.body(images)
        scores = torch.split(F.linear(features, self.weight, self.bias), self.sizes, 1)
        return [TicketOutput(features, each) for each in scores]


class TicketStack(fx.Interpreter):
    """Tickets of one shape as one network. Heads stay apart: tasks differ in their classes."""

    def __init__(self, tickets: Sequence[AnyTicket]) -> None:
        networks = [ticket for ticket in tickets if isinstance(ticket, fx.GraphModule)]
        super().__init__(networks[0])
        self.count = len(networks)
        self.stem = stem_of(networks[0])
        self.head = _head(networks[0])
        self.heads = [network.get_submodule(_head(network)) for network in networks]
        states = [network.state_dict() for network in networks]
        self.weights: dict[str, tuple[Tensor, Tensor | None]] = {}
        for name, module in networks[0].named_children():
            if name == self.head or not isinstance(module, nn.Conv2d | nn.Linear):
                continue
            weight = torch.stack([state[f"{name}.weight"] for state in states])
            bias = None
            if module.bias is not None:
                bias = torch.stack([state[f"{name}.bias"] for state in states])  # (tickets, rows)
            if isinstance(module, nn.Conv2d):
                weight = weight.flatten(0, 1).contiguous(memory_format=torch.channels_last)
                bias = None if bias is None else bias.flatten()
            else:
                weight = weight.transpose(1, 2)  # (tickets, columns, rows)
            self.weights[name] = weight, bias

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        module, values = self.fetch_attr(target), args[0]
        if isinstance(module, nn.Conv2d):
            groups = values.shape[1] // module.in_channels  # 1 for the images, or one a ticket
            weight, bias = self.weights[target]
            return F.conv2d(values, weight, bias, module.stride, module.padding, groups=groups)
        if not isinstance(module, nn.Linear):
            return module(values)
        rows = self.rows(values, module.in_features)
        if target == self.head:
            return [TicketOutput(f, head(f)) for f, head in zip(rows, self.heads, strict=True)]
        weight, bias = self.weights[target]
        return rows @ weight if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, weight)

    def rows(self, values: Tensor, width: int) -> Tensor:
        """(n, 1 or tickets · width) or (tickets, n, width) → (tickets, n, width)."""
        if values.dim() == 3:
            return values
        return values.view(values.shape[0], -1, width).transpose(0, 1).expand(self.count, -1, -1)


def only_scaled(preparation: Preprocessing) -> Preprocessing:
    """The same without mean and deviation: values from 0 to 1."""
    return Preprocessing(preparation.scale, (0.0,), (1.0,))


def _head(network: fx.GraphModule) -> str:
    """The name of the last layer, which is linear in every ticket."""
    return str(next(reversed(network.graph.nodes)).all_input_nodes[0].target)


def stem_of(network: nn.Module) -> Stem | None:
    """The stem of a ticket that has one."""
    return next((each for each in network.children() if isinstance(each, Stem)), None)


def _shape(network: fx.GraphModule, preparation: Preprocessing) -> object:
    """What tickets of one stack have in common: layers, sizes but the number of classes, inputs."""
    head = _head(network)
    sizes = [
        (name, tuple(tensor.shape))
        for name, tensor in network.state_dict().items()
        if not name.startswith(f"{head}.")
    ]
    return repr((describe(network), sizes)), preparation, stem_of(network)
