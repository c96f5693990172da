"""Which runtime runs an artefact: by how its name ends. A new one is a module and a line here.

Such a module has a class that is made of a path and a number of threads.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from rivals.errors import RivalsError


class Runtime(Protocol):
    """Runs one artefact."""

    card: str | None  # JSON, as the artefact or the file beside it has it

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        """Prepared images (n, channels, height, width), n ≥ 1, to the outputs in their order:
        the scores (n, classes), or, of an artefact that names the task, task, class and
        confidence, (n,) each."""


FOLDER = "folder"  # what the artefact of C is

# suffix: module of rivals.edge, its class, what it imports, the extra of pip that brings it
RUNTIMES = {
    ".onnx": ("runtime_onnx", "OnnxRuntime", "onnxruntime", "export"),
    ".ort": ("runtime_onnx", "OnnxRuntime", "onnxruntime", "export"),
    ".tflite": ("runtime_litert", "LiteRTRuntime", "ai_edge_litert", "litert"),
    ".pte": ("runtime_executorch", "ExecutorchRuntime", "executorch", "executorch"),
    FOLDER: ("runtime_c", "CRuntime", None, "c"),
}


def open_runtime(path: Path, threads: int = 1) -> Runtime:
    """The runtime of `path`, loaded; what cannot be run is told in one sentence."""
    if not path.exists():
        raise RivalsError(f"There is no artefact {path}; make one with `rivals export`.")
    suffix = FOLDER if path.is_dir() else path.suffix.lower()
    if suffix not in RUNTIMES:
        known = ", ".join(suffix for suffix in RUNTIMES if suffix != FOLDER)
        raise RivalsError(
            f"{path} is no artefact that can be run: its name should end in {known}, "
            "or it should be the folder of a C program."
        )
    module, kind, package, extra = RUNTIMES[suffix]
    try:
        loaded = import_module(f"rivals.edge.{module}")
        runtime: Runtime = getattr(loaded, kind)(path, threads)
    except ModuleNotFoundError as error:
        if package is None or (error.name or "").partition(".")[0] != package:
            raise
        raise RivalsError(
            f"Running {path} needs {package.replace('_', '-')}, which is not installed; "
            f"use pip install {package.replace('_', '-')}, or pip install 'rivals[{extra}]'."
        ) from error
    return runtime
