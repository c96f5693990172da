"""The features of an exported folder, compiled here and called from Python."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rivals.edge.runtime_c import FLAGS, compiler
from rivals.errors import RivalsError

SECONDS = 300


class CompiledFeatures:
    """Whitened features (n, d) int64 of bytes (n, channels, height, width).

    This runs code from the folder, so it is only for folders that were written just now.
    """

    def __init__(self, folder: Path, features: int, floating: bool = False) -> None:
        self.features = features
        network = "network_float.c" if floating else "network_int8.c"
        with tempfile.TemporaryDirectory() as room:
            library = Path(room) / "features.so"
            words = [str(compiler()), *FLAGS, "-I", str(folder)]
            words += ["-DTEACH_FLOAT"] if floating else []
            words += [str(folder / name) for name in ("features.c", network)]
            done = subprocess.run(
                [*words, "-lm", "-o", str(library)], capture_output=True, timeout=SECONDS
            )
            if done.returncode != 0:
                raise RivalsError(f"{folder}/features.c could not be compiled; export it again.")
            self.call = ctypes.PyDLL(str(library)).teach_features

    def __call__(self, images: Tensor) -> Tensor:
        pixels = np.ascontiguousarray(images.numpy(), np.uint8)
        found = np.empty((len(pixels), self.features), np.int16)
        for image, row in zip(pixels, found, strict=True):
            self.call(ctypes.c_void_p(image.ctypes.data), ctypes.c_void_p(row.ctypes.data))
        return torch.from_numpy(found.astype(np.int64))
