"""The runtime for an artefact, chosen by the suffix of its file name.

To add a runtime, write a module with a class that takes a path and a number of threads, and add a
line to `RUNTIMES`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from rivals.errors import RivalsError


class Runtime(Protocol):
    """A loaded artefact."""

    card: str | None  # JSON text from the artefact or from the file beside it

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        """Run preprocessed images (n, channels, height, width), n ≥ 1.

        Returns the outputs in their order: logits (n, classes), or for a whole model task, class
        and confidence, (n,) each.
        """


FOLDER = "folder"  # the artefact of a C program has no suffix

# suffix: module in rivals.edge, class, package that it needs, extra of pip that installs it
RUNTIMES = {
    ".onnx": ("runtime_onnx", "OnnxRuntime", "onnxruntime", "export"),
    ".ort": ("runtime_onnx", "OnnxRuntime", "onnxruntime", "export"),
    ".tflite": ("runtime_litert", "LiteRTRuntime", "ai_edge_litert", "litert"),
    ".pte": ("runtime_executorch", "ExecutorchRuntime", "executorch", "executorch"),
    FOLDER: ("runtime_c", "CRuntime", None, "c"),
}


def open_runtime(path: Path, threads: int = 1) -> Runtime:
    """Load the artefact at `path` into its runtime."""
    if not path.exists():
        raise RivalsError(f"There is no artefact {path}; make one with `rivals export`.")
    suffix = FOLDER if path.is_dir() else path.suffix.lower()
    if suffix not in RUNTIMES:
        known = ", ".join(suffix for suffix in RUNTIMES if suffix != FOLDER)
        raise RivalsError(
            f"{path} is not an artefact that can be run: expected a file that ends in {known}, "
            "or the folder of a C program."
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
