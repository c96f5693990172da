"""onnxruntime, for `.onnx` and `.ort`: one thread and no memory arena, to use little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.reading import printable

onnxruntime.set_default_logger_severity(4)  # errors are raised; what has no session is silent, too


class OnnxRuntime:
    """A session of onnxruntime on the CPU."""

    def __init__(self, path: Path, data: bytes, threads: int = 1) -> None:
        self.path = path
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4  # errors are raised; print nothing
        try:
            # Bytes: if onnxruntime reads the file itself, its errors do not say why it failed.
            # No fallback: there is none, and onnxruntime would print that it tries.
            self.session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"], enable_fallback=False
            )
            self.input = self.session.get_inputs()[0].name
        except Exception as error:  # onnxruntime has no common base class for its errors
            raise RivalsError(
                f"{path} is not an artefact that onnxruntime {onnxruntime.__version__} can run "
                f"({_first_line(error)}); export it again."
            ) from error

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        try:
            outputs: list[NDArray[Any]] = self.session.run(None, {self.input: images})
        except Exception as error:
            raise RivalsError(
                f"{self.path} could not be run ({_first_line(error)}); export it again."
            ) from error
        return outputs


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return printable(text.splitlines()[0])
