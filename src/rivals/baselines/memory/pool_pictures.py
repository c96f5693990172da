"""Pictures of a folder, and images of any data set, brought to one shape as bytes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from rivals.errors import RivalsError
from rivals.io.pictures import Shape, opened, pixels
from rivals.streams.data.progress import bar

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow turns colour into grey


def picture(path: Path, shape: Shape) -> NDArray[np.uint8] | None:
    """(channels, height, width) of the picture at `path`; None if it cannot be read."""
    try:
        with opened(path) as found:
            return pixels(_eight_bits(found) if found.mode == "F" else found, shape)
    except RivalsError:
        return None


def _eight_bits(found: Image.Image) -> Image.Image:
    """A picture of fractions has no stated range, so its own range becomes 0 … 255."""
    values = np.asarray(found, np.float64)
    low, span = values.min(), np.ptp(values) or 1.0
    return Image.fromarray(((values - low) / span * 255).round().astype(np.uint8))


def read_folder(folder: Path, shape: Shape) -> tuple[NDArray[np.uint8], int, str]:
    """Pictures under `folder` (n, channels, height, width), the number of other files, and a digest
    of the pixels. They are decoded once into a temporary file that is memory-mapped."""
    if not folder.is_dir():
        raise RivalsError(f"The pool {folder} is not a folder; give a folder of pictures.")
    found = (Path(at) / name for at, _, names in os.walk(folder) for name in names)
    paths = sorted((path for path in found if path.is_file()), key=lambda path: path.parts)
    digest, count = hashlib.sha256(), 0
    with tempfile.TemporaryFile() as file:
        try:
            with bar(f"Reading {folder.name}", len(paths)) as advance:
                for path in paths:
                    pixels = picture(path, shape)
                    if pixels is not None:
                        data = pixels.tobytes()
                        file.write(data)
                        digest.update(data)
                        count += 1
                    advance(1)
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
    """(n, c, h, w) bytes → (n, channels, height, width): grey repeated, colour averaged, scaled."""
    if images.shape[1:] == shape:
        return images
    values = images.float()
    if images.shape[1] == 3 and shape[0] == 1:
        values = (values * torch.tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True)
    if values.shape[2:] != shape[1:]:
        values = interpolate(values, shape[1:], mode="bilinear", antialias=True)
    return values.round().clamp(0, 255).to(torch.uint8).expand(-1, shape[0], -1, -1).contiguous()
