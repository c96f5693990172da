"""A plain network as a list of words and back: no code in a file, a small closed vocabulary.

Each node is one layer: {"name", "op", "from": [names of nodes before], and the op's numbers}, or
without "from" where it follows the node above. Weights are stored apart, under "name.weight" and
"name.bias".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx, nn

from rivals.errors import RivalsError
from rivals.io.reading import printable
from rivals.nn.cut import Cutter, conv2d, linear
from rivals.nn.plain_layers import Gradients, Power, Resize, Square
from rivals.nn.stem import Stem
from rivals.nn.timm_stem import TimmStem, build_stem
from rivals.tickets.ticket_checks import Shape, layer_shape, stem_tensors

INPUT = "images"


def _number(value: Any) -> int:
    """Square kernels and equal strides are all we make, so one number says it."""
    return int(value[0] if isinstance(value, tuple) else value)


def _pooling(module: nn.Module) -> dict[str, Any]:
    return {name: _number(getattr(module, name)) for name in ("kernel_size", "stride", "padding")}


def _words(module: nn.Module) -> tuple[str, dict[str, Any]]:
    """The word for a layer, and its numbers."""
    if isinstance(module, Stem):
        return module.word, module.facts()
    word, numbers = WORDS[type(module)]
    return word, numbers(module)


WORDS: dict[type[nn.Module], tuple[str, Callable[[Any], dict[str, Any]]]] = {
    nn.Conv2d: ("conv2d", lambda m: {"stride": _number(m.stride), "padding": _number(m.padding)}),
    nn.Linear: ("linear", lambda m: {}),
    nn.ReLU: ("relu", lambda m: {}),
    nn.Identity: ("identity", lambda m: {}),
    nn.Flatten: ("flatten", lambda m: {}),
    nn.MaxPool2d: ("max_pool", _pooling),
    nn.AvgPool2d: ("avg_pool", _pooling),
    nn.AdaptiveAvgPool2d: ("global_pool", lambda m: {}),
    Resize: ("resize", lambda m: {"side": m.side}),
    Square: ("square", lambda m: {}),
    Power: ("power", lambda m: {"exponent": m.exponent}),
    Gradients: ("gradients", lambda m: {"cell": m.cell}),
}


def describe(network: fx.GraphModule) -> list[dict[str, Any]]:
    """The layers of a ticket in the order of its forward pass."""
    nodes: list[dict[str, Any]] = []
    above = INPUT
    for node in network.graph.nodes:
        word, numbers = "add", dict[str, Any]()  # the only function that a cut lets pass
        if node.op == "call_module":
            word, numbers = _words(network.get_submodule(node.target))
        elif node.op != "call_function":
            continue
        before = [argument.name for argument in node.all_input_nodes]
        if before != [above]:
            numbers = {"from": before, **numbers}
        nodes.append({"name": node.name, "op": word, **numbers})
        above = node.name
    return nodes


def build(
    nodes: list[dict[str, Any]],
    tensors: dict[str, Tensor],
    input_shape: Sequence[int],
    classes: int,
) -> fx.GraphModule:
    """The plain network that `nodes` describe, with its weights; what does not fit is refused."""
    cutter = Cutter()
    flows: dict[str, Any] = {INPUT: cutter.input()}
    shapes: dict[str, Shape] = {INPUT: tuple(input_shape)}
    above = INPUT
    for node in nodes:
        names = node.get("from", [above])
        inputs = [flows[name] for name in names]
        above = node["name"]
        if not isinstance(above, str) or above in shapes:
            raise ValueError("a layer has no name, or the name of another")
        shapes[above] = layer_shape(node, tensors, [shapes[name] for name in names])
        if node["op"] == "add":
            flows[node["name"]] = inputs[0] + inputs[1]
        else:
            flows[node["name"]] = cutter.emit(_layer(node, tensors), inputs[0])
    if shapes[above] != (classes,):
        raise ValueError(f"the last layer does not give a score for each of {classes} classes")
    return cutter.finish(flows[above]).eval()


def _layer(node: dict[str, Any], tensors: dict[str, Tensor]) -> nn.Module:
    word, name = node["op"], node["name"]
    if word == "conv2d":
        weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
        return conv2d(weight, bias, node["stride"], node["padding"])
    if word == "linear":
        return linear(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))
    if word == TimmStem.word:
        weights = stem_tensors(name, tensors)
        stem = build_stem(node["architecture"], node["side"], weights)
        if stem.features != node["features"]:
            raise ValueError("its backbone gives another number of features than it says")
        return stem
    if word in ("max_pool", "avg_pool"):
        kind = nn.MaxPool2d if word == "max_pool" else nn.AvgPool2d
        return kind(node["kernel_size"], node["stride"], node["padding"])
    if word == "resize":
        return Resize(node["side"])
    if word == "power":
        return Power(node["exponent"])
    if word == "gradients":
        return Gradients(node["cell"])
    simple: dict[str, Callable[[], nn.Module]] = {
        "relu": nn.ReLU,
        "identity": nn.Identity,
        "flatten": nn.Flatten,
        "square": Square,
        "global_pool": lambda: nn.AdaptiveAvgPool2d(1),
    }
    if word not in simple:
        raise RivalsError(
            f"The ticket has a layer '{printable(str(word))}' that this version does not know."
        )
    return simple[word]()
