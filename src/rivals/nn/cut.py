"""Cutting: the same forward, with a recorder in place of the values, leaves ordinary layers behind.

Instead of a tensor a `torch.fx` proxy flows through the network. Every layer that meets it hands
over a plain layer of torch holding its active slice, and the graph of these is the ticket. Whatever
a network's forward does (sequences, residual additions, a user's own code) is followed by itself.
"""

from __future__ import annotations

from copy import deepcopy
from operator import add
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn

from rivals.errors import RivalsError
from rivals.nn.plain_layers import Gradients, Power, Resize, Square
from rivals.nn.stem import Stem

POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
FRESH = (
    nn.Conv2d,
    nn.Linear,
    *POOLS,
    Resize,
    Power,
    Square,
    Gradients,
)  # give no view of their input
PLAIN = (*FRESH, nn.ReLU, nn.Identity, nn.Flatten)  # what a ticket is made of
PlainLayer = TypeVar("PlainLayer", nn.Linear, nn.Conv2d)


class Cutter(fx.Tracer):
    """Collects plain layers in the order in which the proxy meets them."""

    def __init__(self) -> None:
        super().__init__()
        self.root = nn.Module()
        self.graph = fx.Graph(tracer_cls=Cutter)
        self.layers = nn.ModuleDict()

    def input(self) -> Any:
        return fx.Proxy(self.graph.placeholder("images"), self)

    def emit(self, module: nn.Module, values: Any) -> Any:
        if type(module) not in PLAIN and not isinstance(module, Stem):
            known = ", ".join(kind.__name__ for kind in PLAIN)
            raise RivalsError(
                f"A ticket cannot hold a layer of the kind {type(module).__name__}; "
                f"it is made of {known} and of sums."
            )
        name = f"{type(module).__name__.lower()}{len(self.layers)}"
        self.layers[name] = module
        return self.create_proxy("call_module", name, (values,), {})

    def finish(self, output: Any) -> fx.GraphModule:
        """The plain network: input → output, nothing of ours inside."""
        for node in self.graph.nodes:
            if node.op not in ("placeholder", "call_module") and node.target is not add:
                name = getattr(node.target, "__name__", node.target)
                raise RivalsError(
                    f"A ticket cannot hold the operation '{name}'; "
                    "build the network of layers of rivals.nn and of sums of their flows."
                )
        self.graph.output(output.node)
        self.graph.lint()
        for node in self.graph.nodes:
            if self._alone(node):
                self.layers[node.target] = nn.ReLU(inplace=True)
        ticket = fx.GraphModule(dict(self.layers.items()), self.graph, class_name="Ticket")
        # A tenth of the time of a small ticket on one image: fx wraps every call to explain errors,
        # and a module finds its parts slowly, unless they are ordinary attributes.
        type(ticket).__call__ = nn.Module.__call__  # type: ignore[method-assign]
        vars(ticket).update(self.layers.items())
        return ticket

    def _alone(self, node: fx.Node) -> bool:
        """Whether a ReLU may write over what it reads: fresh values that nothing else reads."""
        if node.op != "call_module" or not isinstance(self.layers[str(node.target)], nn.ReLU):
            return False
        before = node.all_input_nodes[0]
        fresh = before.op == "call_function" or (
            before.op == "call_module" and isinstance(self.layers[str(before.target)], FRESH)
        )
        return fresh and len(before.users) == 1


def cutting(values: Any) -> bool:
    """Whether a recorder is flowing, not numbers."""
    return isinstance(values, fx.Proxy)


def run(module: nn.Module, values: Any) -> Tensor:
    """Apply an ordinary module to values, or hand it to the recorder that flows in their place."""
    out: Tensor = values.tracer.emit(module, values) if cutting(values) else module(values)
    return out


class Follower(fx.Interpreter):
    """Hands copies of the layers of a plain network to the recorder that flows through it."""

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run(deepcopy(self.fetch_attr(target)), args[0])


def follow(network: nn.Module, values: Any) -> Any:
    """Let a recorder flow through a plain network, or through a module that is one layer.

    A stem stays the same object, for all who read its features.
    """
    if isinstance(network, fx.GraphModule):
        return Follower(network).run(values)
    return run(network if isinstance(network, Stem) else deepcopy(network), values)


def linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """An ordinary linear layer that owns copies of `weight` (rows, columns) and `bias`."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device=weight.device)
    return _filled(layer, weight, bias)


def conv2d(weight: Tensor, bias: Tensor | None, stride: int, padding: int) -> nn.Conv2d:
    """An ordinary convolution that owns copies of `weight` (rows, columns, k, k) and `bias`."""
    rows, columns, kernel, _ = weight.shape
    layer = nn.Conv2d(
        columns, rows, kernel, stride, padding, bias=bias is not None, device=weight.device
    )
    return _filled(layer, weight, bias)


def _filled(layer: PlainLayer, weight: Tensor, bias: Tensor | None) -> PlainLayer:
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None and layer.bias is not None:
            layer.bias.copy_(bias)
    return layer.requires_grad_(False)
