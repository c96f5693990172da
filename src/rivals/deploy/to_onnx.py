"""ONNX files, and the same in onnxruntime's own format, which a smaller runtime can read."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rivals.deploy.export_format import Format, Options, card, formats
from rivals.deploy.prepared import graph, save, ticket_graph
from rivals.deploy.whole_model import Whole
from rivals.errors import RivalsError
from rivals.io.checksum import with_checksum
from rivals.tickets.ticket import Ticket


class Onnx(Format):
    """One file with every weight, any number of images at a time."""

    suffix = ".onnx"
    extra = "export"
    modules = ("onnx", "onnxscript", "onnxruntime")

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        save(ticket_graph(ticket, options.raw_input), card(ticket, options), path)

    def write_whole(self, whole: Whole, path: Path, options: Options) -> None:
        module, outputs, facts = whole.written(ranked=False)
        save(graph(module, whole.input_shape, True, outputs), facts, path)


class Ort(Onnx):
    """The graph as onnxruntime has it after its optimisations, for any processor."""

    suffix = ".ort"

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            plain = Path(folder) / "ticket.onnx"
            super().write(ticket, plain, options)
            convert(plain, path)

    def write_whole(self, whole: Whole, path: Path, options: Options) -> None:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            plain = Path(folder) / "whole.onnx"
            super().write_whole(whole, plain, options)
            convert(plain, path)


def convert(plain: Path, path: Path) -> None:
    """An ONNX file to onnxruntime's format, by onnxruntime itself."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    # Extended, not all: the last level lays weights out for the processor at hand.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 4
    options.add_session_config_entry("session.save_model_format", "ORT")
    try:
        ort.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own classes, without a common name
        reason = str(error).splitlines()[0][:200]
        raise RivalsError(
            f"onnxruntime could not write {path.name} ({reason}); make room there or choose "
            "another folder."
        ) from error
    path.write_bytes(with_checksum(path.read_bytes()))


formats.register("onnx")(Onnx())
formats.register("ort")(Ort())
