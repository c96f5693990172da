"""onnxruntime, for `.onnx` and `.ort`: one thread and no memory arena, to use little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from rivals.errors import RivalsError


class OnnxRuntime:
    """A session of onnxruntime on the CPU."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4  # errors are raised; print nothing
        try:
            # Read here: if onnxruntime reads the file itself, its errors do not say why it failed.
            data = path.read_bytes()
            self.session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except OSError as error:
            raise RivalsError(f"{path} cannot be read ({error.strerror}).") from error
        except Exception as error:  # onnxruntime has no common base class for its errors
            raise RivalsError(
                f"{path} is not an artefact that onnxruntime {onnxruntime.__version__} can run "
                f"({_first_line(error)}); export it again."
            ) from error
        self.input = self.session.get_inputs()[0].name
        self.card: str | None = self.session.get_modelmeta().custom_metadata_map.get("rivals")

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = self.session.run(None, {self.input: images})
        return outputs


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
