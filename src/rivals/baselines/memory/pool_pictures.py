"""Pictures in a folder, and images of any data set, resized to one shape as uint8."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from rivals.errors import RivalsError
from rivals.io.pictures import Shape, to_pixels
from rivals.streams.data.progress import bar

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as pillow turns colour into grey


def read_folder(folder: Path, shape: Shape) -> tuple[NDArray[np.uint8], int, str]:
    """Decode the pictures under `folder`.

    They are written to a temporary file that is mapped, so they need not fit in memory.

    Returns:
        The pixels (n, channels, height, width), the number of other files, a digest of the pixels.
    """
    if not folder.is_dir():
        raise RivalsError(f"The pool {folder} is not a folder; give a folder of pictures.")
    found = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    paths = sorted((path for path in found if path.is_file()), key=lambda path: path.parts)
    digest, count = hashlib.sha256(), 0
    with tempfile.TemporaryFile() as file:
        try:
            with bar(f"Reading {folder.name}", len(paths)) as advance:
                for path in paths:
                    advance(1)
                    try:
                        data = to_pixels(path, shape).tobytes()
                    except RivalsError:  # not a picture; the number of these is reported
                        continue
                    file.write(data)
                    digest.update(data)
                    count += 1
            file.flush()
        except OSError as error:
            raise RivalsError(
                f"The pictures of {folder} need {count + 1} × {np.prod(shape)} bytes in "
                f"{tempfile.gettempdir()} ({error.strerror}); set $TMPDIR to a larger place."
            ) from error
        if count == 0:
            raise RivalsError(
                f"The pool {folder} has no picture among its {len(paths)} files; "
                "give a folder with PNG, JPEG or other picture files."
            )
        mapped = np.memmap(file, np.uint8, "r", shape=(count, *shape))
    return mapped, len(paths) - count, digest.hexdigest()[:16]


def fitted(images: Tensor, shape: Shape) -> Tensor:
    """Images (n, c, h, w) resized to `shape`, with colour turned to grey or grey to colour."""
    if images.shape[1:] == shape:
        return images
    values = images.float()
    if images.shape[1] == 3 and shape[0] == 1:
        values = (values * torch.tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)
    if values.shape[2:] != shape[1:]:
        values = interpolate(values, shape[1:], mode="bilinear", antialias=True)
    return values.round().clamp(0, 255).to(torch.uint8).expand(-1, shape[0], -1, -1).contiguous()
