"""What a plain network costs: weights, bytes, multiplications, memory between its layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import safetensors.torch
import torch
from torch import Tensor, fx, nn

from rivals.nn.plain_layers import Gradients, Power, Square


@dataclass(frozen=True)
class Cost:
    """Of one image through a plain network."""

    weights: int
    bytes: int  # as a safetensors file
    macs: int
    ram: int  # bytes of all that lies between layers at once, at most, the image among it


def cost(network: nn.Module, input_shape: tuple[int, int, int]) -> Cost:
    """Count what is there."""
    weights = sum(p.numel() for p in network.parameters())
    size = len(safetensors.torch.save({k: v.contiguous() for k, v in network.state_dict().items()}))
    return Cost(
        weights, size, multiplications(network, input_shape), working_memory(network, input_shape)
    )


def multiplications(network: nn.Module, input_shape: tuple[int, int, int]) -> int:
    """MACs of one image in convolutions, gradients and linear layers: all that a ticket has."""
    counts: list[int] = []

    def count(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        if isinstance(layer, Gradients):
            counts.append(layer.multiplications(*inputs[0].shape[2:]))
            return
        weight = cast(Tensor, layer.weight)  # (outputs, inputs of each, …)
        counts.append(output.numel() * weight[0].numel())

    kinds = nn.Conv2d | nn.Linear | Gradients
    layers = [each for each in network.modules() if isinstance(each, kinds)]
    handles = [each.register_forward_hook(count) for each in layers]
    try:
        with torch.no_grad():
            network(torch.zeros(1, *input_shape))
    finally:
        for handle in handles:
            handle.remove()
    return sum(counts)


def working_memory(network: nn.Module, input_shape: tuple[int, int, int]) -> int:
    """The most that a pass of one image must hold at a time, in bytes of float32.

    A value is held from the layer that writes it to the last that reads it; what changes value by
    value (ReLU, flattening, a sum) writes over its input. A ticket in C is laid out like this.
    """
    if not isinstance(network, fx.GraphModule):
        return 0
    sizes = SizeRecorder(network)
    with torch.no_grad():
        sizes.run(torch.zeros(1, *input_shape))
    nodes = [node for node in network.graph.nodes if node.op != "output"]
    last = {node: max((nodes.index(u) for u in node.users if u in nodes), default=-1)
            for node in nodes}  # fmt: skip
    most = 0
    for number, node in enumerate(nodes):
        held = [n for n in nodes[:number] if last[n] >= number]  # its inputs are among them
        over = any(last[n] == number and sizes.of[n] == sizes.of[node] for n in held)
        own = 0 if over and _value_by_value(network, node) else sizes.of[node]
        most = max(most, own + sum(sizes.of[n] for n in held), _inside(network, node, sizes))
    return 4 * most


class SizeRecorder(fx.Interpreter):
    """How many values each node gives."""

    def __init__(self, network: fx.GraphModule) -> None:
        super().__init__(network)
        self.of: dict[fx.Node, int] = {}
        self.sides: dict[fx.Node, tuple[int, ...]] = {}  # height and width, of pictures

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        self.of[n], self.sides[n] = result.numel(), tuple(result.shape[2:])
        return result


def _inside(network: fx.GraphModule, node: fx.Node, sizes: SizeRecorder) -> int:
    """What a layer of several steps holds between them, when it needs its input no more."""
    layer = network.get_submodule(str(node.target)) if node.op == "call_module" else None
    return layer.held(*sizes.sides[node.all_input_nodes[0]]) if isinstance(layer, Gradients) else 0


def _value_by_value(network: fx.GraphModule, node: fx.Node) -> bool:
    if node.op != "call_module":
        return node.op == "call_function"  # a sum, the only one in a ticket
    module = network.get_submodule(str(node.target))
    return isinstance(module, nn.ReLU | nn.Flatten | nn.Identity | Power | Square)
