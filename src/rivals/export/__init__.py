"""Tickets leave Python: written for a runtime, run there, compared, and only then put in place."""

from rivals.export import c as c
from rivals.export import executorch as executorch
from rivals.export import int8 as int8
from rivals.export import litert as litert
from rivals.export import onnx as onnx
from rivals.export.artefact import Exported, export, export_whole
from rivals.export.format import Format, Options, formats
from rivals.export.parity import Parity
from rivals.export.source import Source, find, find_whole

__all__ = [
    "Exported", "Format", "Options", "Parity", "Source", "export", "export_whole", "find",
    "find_whole", "formats",
]  # fmt: skip
