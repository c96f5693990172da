"""LiteRT (formerly TensorFlow Lite), for `.tflite`. A device needs only ai-edge-litert."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

from rivals.edge.card import read_sidecar
from rivals.edge.quiet import quiet
from rivals.errors import RivalsError


class LiteRTRuntime:
    """An interpreter; the artefact takes one image at a time."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.card: str | None = read_sidecar(path)
        try:
            with quiet():  # it prints which delegate it uses
                self.interpreter = Interpreter(str(path), num_threads=threads)
                self.interpreter.allocate_tensors()
        except (ValueError, RuntimeError, OSError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            raise RivalsError(
                f"{path} is not an artefact that LiteRT can run ({reason}); export it again."
            ) from error
        self.input = self.interpreter.get_input_details()[0]["index"]
        self.output = self.interpreter.get_output_details()[0]["index"]

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        return [np.concatenate([self.run(image[None]) for image in images])]

    def run(self, image: NDArray[Any]) -> NDArray[Any]:
        """Logits (1, classes) of an image (1, channels, height, width)."""
        self.interpreter.set_tensor(self.input, image)
        self.interpreter.invoke()
        scores: NDArray[Any] = self.interpreter.get_tensor(self.output)
        return scores
