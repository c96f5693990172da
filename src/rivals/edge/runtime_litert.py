"""LiteRT (formerly TensorFlow Lite), for `.tflite`. A device needs only ai-edge-litert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from rivals.edge.quiet import quiet
from rivals.errors import RivalsError
from rivals.io.reading import printable


class LiteRTRuntime:
    """An interpreter; the artefact takes one image at a time."""

    def __init__(self, path: Path, data: bytes, threads: int = 1) -> None:
        self.path = path
        try:
            with quiet():  # it prints which delegate it uses
                self.interpreter = Interpreter(model_content=data, num_threads=threads)
                self.interpreter.allocate_tensors()
        except (ValueError, RuntimeError, OSError) as error:
            reason = printable((str(error).strip() or type(error).__name__).splitlines()[0])
            raise RivalsError(
                f"{path} is not an artefact that LiteRT can run ({reason}); export it again."
            ) from error
        self.input = self.interpreter.get_input_details()[0]["index"]
        self.output = self.interpreter.get_output_details()[0]["index"]

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        return [np.concatenate([self.run(image[None]) for image in images])]

    def run(self, image: NDArray[Any]) -> NDArray[Any]:
        """Logits (1, classes) of an image (1, channels, height, width)."""
        try:
            self.interpreter.set_tensor(self.input, image)
            self.interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            reason = printable((str(error).strip() or type(error).__name__).splitlines()[0])
            raise RivalsError(
                f"{self.path} could not be run ({reason}); export it again."
            ) from error
        scores: NDArray[Any] = self.interpreter.get_tensor(self.output)
        return scores
