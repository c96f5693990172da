"""The runtime for an artefact, chosen by the suffix of its file name.

To add a runtime, write a module with a class that takes a path, the bytes of the artefact and a
number of threads, and add a line to `RUNTIMES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from numpy.typing import NDArray

from rivals.edge.artefact_files import FOLDER, PAGE, ArtefactFiles
from rivals.errors import RivalsError


class Runtime(Protocol):
    """A loaded artefact."""

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        """Run preprocessed images (n, channels, height, width), n ≥ 1.

        Returns the outputs in their order: logits (n, classes), or for a whole model task, class
        and confidence, (n,) each.
        """


# suffix: module in rivals.edge, class, package that it needs, extra of pip that installs it
RUNTIMES = {
    ".onnx": ("runtime_onnx", "OnnxRuntime", "onnxruntime", "export"),
    ".ort": ("runtime_onnx", "OnnxRuntime", "onnxruntime", "export"),
    PAGE: ("runtime_onnx", "OnnxRuntime", "onnxruntime", "export"),
    ".tflite": ("runtime_litert", "LiteRTRuntime", "ai_edge_litert", "litert"),
    ".pte": ("runtime_executorch", "ExecutorchRuntime", "executorch", "executorch"),
}


def open_runtime(files: ArtefactFiles, threads: int = 1) -> Runtime:
    """Load an artefact into its runtime."""
    if files.suffix == FOLDER:
        from rivals.edge.runtime_c import CRuntime

        return CRuntime(files)
    module, kind, package, extra = RUNTIMES[files.suffix]
    try:
        loaded = import_module(f"rivals.edge.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise RivalsError(
            f"Running {files.path} needs {package.replace('_', '-')}, which is not installed; "
            f"use pip install {package.replace('_', '-')}, or pip install 'rivals[{extra}]'."
        ) from error
    runtime: Runtime = getattr(loaded, kind)(files.path, files.content[0], threads)
    return runtime
