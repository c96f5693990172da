"""ExecuTorch, for `.pte`. Its Python runtime loads torch, so this serves to check an artefact.

On a phone or a board the ExecuTorch libraries for C++, Java or Swift run the same file without
torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.edge.quiet import quiet
from rivals.errors import RivalsError
from rivals.io.reading import printable

with quiet():  # it prints facts about the processor
    import torch
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import ExecutorchRuntime as Executorch


class ExecutorchRuntime:
    """A loaded program; the artefact takes one image at a time."""

    def __init__(self, path: Path, data: bytes, threads: int = 1) -> None:
        try:
            with quiet():
                _unsafe_reset_threadpool(threads)
                self.program = Executorch.get().load_program(data)
                self.method = self.program.load_method("forward")
        except (ValueError, RuntimeError, OSError) as error:
            reason = printable((str(error).strip() or type(error).__name__).splitlines()[0])
            raise RivalsError(
                f"{path} is not an artefact that executorch can run ({reason}); export it again."
            ) from error
        if self.method is None:
            raise RivalsError(f"{path} has no method 'forward'; export it again.")

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        return [np.concatenate([self.run(image[None]) for image in images])]

    def run(self, image: NDArray[Any]) -> NDArray[Any]:
        """Logits (1, classes) of an image (1, channels, height, width)."""
        (scores,) = self.method.execute((torch.from_numpy(np.ascontiguousarray(image)),))
        copy: NDArray[Any] = scores.numpy().copy()  # the next image overwrites the buffer
        return copy
