"""A ticket as the C functions of its layers, by emx-onnx-cgen, and the calls that make up a pass.

What comes back is taken apart: the layers are kept as they are written, but private to their file,
and the function that calls them is left out, for we place what it computes ourselves (`memory`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rivals.deploy.prepared import INPUT, ticket_graph
from rivals.errors import RivalsError
from rivals.tickets.ticket import Ticket

IMAGE, SCORES = INPUT, "scores"  # the names of what goes in and of what comes out


@dataclass(frozen=True)
class CStep:
    """A call of one layer: what it reads, and the one thing it writes."""

    function: str
    operation: str  # the word of ONNX: Conv, Relu, …
    arguments: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.arguments[:-1]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The type of the values of each argument."""
        return ("const float",) * len(self.inputs) + ("float",)

    @property
    def output(self) -> str:
        return self.arguments[-1]


@dataclass(frozen=True)
class CNetwork:
    """The layers of a ticket in C."""

    layers: str  # weights and functions, all of them static
    steps: tuple[CStep, ...]
    shapes: dict[str, tuple[int, ...]]  # of the image, the scores and all that is between
    weights: int


def generate(ticket: Ticket) -> CNetwork:
    """The C of `ticket`; a layer that cannot be written is told in one sentence."""
    from emx_onnx_cgen import CodegenError, ShapeInferenceError, UnsupportedOpError
    from emx_onnx_cgen.compiler import Compiler, CompilerOptions

    options = CompilerOptions(
        model_name="network",
        restrict_arrays=False,
        large_temp_threshold_bytes=0,  # never the heap
        large_weight_threshold=0,  # never a file of weights
    )
    try:
        text = Compiler(options).compile(ticket_graph(ticket, raw_input=False, batch=1))
    except (CodegenError, ShapeInferenceError, UnsupportedOpError) as error:
        raise RivalsError(f"The ticket cannot be written in C ({error}).") from error
    weights = sum(parameter.numel() for parameter in ticket.network.parameters())
    shapes = {IMAGE: (1, *ticket.input_shape), SCORES: (1, len(ticket.classes))}
    return take_apart(text, shapes, weights)


BODY = re.compile(r"^void network\(.*?\) \{\n(.*?)^\}\n", re.MULTILINE | re.DOTALL)
LOADER = re.compile(r"^_Bool network_load\(.*?^\}\n\n?", re.MULTILINE | re.DOTALL)
LAYER = re.compile(r"OpType: (\w+)\n(?:(?!\*/).)*?\*/\nEMX_NODE_FN void (\w+)\(", re.DOTALL)
PLACE = re.compile(r"float (\w+)((?:\[\d+\])+);")
CALL = re.compile(r"(\w+)\(([\w, ]+)\);")


def take_apart(text: str, shapes: dict[str, tuple[int, ...]], weights: int) -> CNetwork:
    """The parts of a generated file; one of another make than we know is refused."""
    body = BODY.search(text)
    if body is None:
        raise _another_make("it has no function of the network")
    operations = {function: operation for operation, function in LAYER.findall(text)}
    shapes, steps = dict(shapes), []
    for line in filter(None, (line.strip() for line in body[1].splitlines())):
        if place := PLACE.fullmatch(line):
            shapes[place[1]] = tuple(int(size) for size in re.findall(r"\d+", place[2]))
        elif (call := CALL.fullmatch(line)) and call[1] in operations:
            arguments = tuple(call[2].split(", "))
            steps.append(CStep(call[1], operations[call[1]], arguments))
        else:
            raise _another_make(f"it has the line '{line}'")
    return CNetwork(_private(LOADER.sub("", BODY.sub("", text))), tuple(steps), shapes, weights)


def _private(text: str) -> str:
    """Weights that only their file sees."""
    text = text[text.index("*/") + 2 :]  # its own first words
    text = re.sub(r"^extern const .*;\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^const EMX_UNUSED ", "static const EMX_UNUSED ", text, flags=re.MULTILINE)
    return text.strip() + "\n"


def _another_make(reason: str) -> RivalsError:
    return RivalsError(
        f"The C that emx-onnx-cgen wrote is of another make than expected ({reason}); "
        "use pip install 'rivals[c]' for a version that fits."
    )
