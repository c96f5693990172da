"""A module as an ONNX graph: every weight once, short names, and a card in the metadata."""

from __future__ import annotations

import contextlib
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rivals.edge.quiet import quiet
from rivals.errors import RivalsError
from rivals.io.checksum import with_checksum
from rivals.nn.plain_layers import Gradients
from rivals.tickets.ticket import Ticket

if TYPE_CHECKING:
    from onnx import ModelProto

INPUT = "images"
OPSET = 20
OF_GRADIENTS = "g"  # how the names of their nodes begin


class Prepared(nn.Module):
    """A ticket's network with the preparation of pictures before it: bytes in, scores out."""

    def __init__(self, ticket: Ticket) -> None:
        super().__init__()
        self.network, self.prepare = ticket.network, ticket.preprocessing

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.network(self.prepare(images))
        return scores


def ticket_module(ticket: Ticket, raw_input: bool) -> tuple[nn.Module, Tensor]:
    """What is exported, and an image as it takes one: uint8, or prepared float32."""
    kind = torch.uint8 if raw_input else torch.float32
    module = Prepared(ticket) if raw_input else ticket.network
    return module.eval(), torch.zeros(1, *ticket.input_shape, dtype=kind)


@contextlib.contextmanager
def converting(converter: str) -> Iterator[None]:
    """Converters are quiet, and fail in one sentence."""
    try:
        with quiet():
            yield
    except Exception as error:  # of many kinds, from several passes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise RivalsError(f"{converter} could not write the ticket ({reason}).") from error


def ticket_graph(ticket: Ticket, raw_input: bool, batch: int | None = None) -> ModelProto:
    """The graph of a ticket: uint8 or prepared float32 images in, "scores" (n, classes) out."""
    module, _ = ticket_module(ticket, raw_input)
    return graph(module, ticket.input_shape, raw_input, ["scores"], batch)


def graph(
    module: nn.Module,
    shape: tuple[int, int, int],
    raw_input: bool,
    outputs: Sequence[str],
    batch: int | None = None,
) -> ModelProto:
    """Trace `module` on images of `shape`, a `batch` of them or, by default, any number."""
    from onnx.inliner import inline_local_functions

    kind = torch.uint8 if raw_input else torch.float32
    example = torch.zeros(batch or 2, *shape, dtype=kind)
    dynamic = None if batch else ({0: torch.export.Dim("n")},)
    with silence(), torch.no_grad():
        program = torch.onnx.export(
            module.eval(), (example,), dynamo=True, opset_version=OPSET, verbose=False,
            input_names=[INPUT], output_names=list(outputs), dynamic_shapes=dynamic,
        )  # fmt: skip
    assert program is not None
    model: ModelProto = inline_local_functions(program.model_proto)
    return slim(model)


def slim(model: ModelProto) -> ModelProto:
    """Take out what no runtime needs: remarks, shapes that it infers anyway, long names."""
    names = {value.name: value.name for value in (*model.graph.input, *model.graph.output)}

    def short(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}") if name else name

    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    for value in (*model.graph.input, *model.graph.output):
        del value.metadata_props[:]
        value.doc_string = ""
    for tensor in model.graph.initializer:
        tensor.name, tensor.doc_string = short(tensor.name), ""
        del tensor.metadata_props[:]
    for number, node in enumerate(model.graph.node):
        inside = any(Gradients.__name__ in entry.value for entry in node.metadata_props)
        prefix = OF_GRADIENTS if inside or node.name.startswith(OF_GRADIENTS) else "n"
        node.name, node.doc_string = f"{prefix}{number}", ""
        del node.metadata_props[:]
        node.input[:] = [short(name) for name in node.input]
        node.output[:] = [short(name) for name in node.output]
    return model


def save(model: ModelProto, card: dict[str, Any], path: Path) -> None:
    """Write the graph with its card, as one file; the checksum of a card covers all of it."""
    del model.metadata_props[:]
    entry = model.metadata_props.add()
    entry.key, entry.value = "rivals", json.dumps(card, ensure_ascii=False)
    data = model.SerializeToString()
    path.write_bytes(with_checksum(data) if "sha256" in card else data)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Exporters tell of their inner life on stderr; what fails comes as an exception."""
    names = (None, "torch.onnx", "torch.export", "onnxscript")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
