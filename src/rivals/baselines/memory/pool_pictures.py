"""Pictures of any size and mode, and images of any data set, brought to one shape as bytes."""

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
from rivals.streams.data.progress import bar

Shape = tuple[int, int, int]  # (channels, height, width)

# Not all that Pillow can read: for some formats it starts other programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
LARGEST = 50_000_000  # pixels; a tiny file can claim any number
LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow turns colour into grey


def picture(path: Path, shape: Shape) -> NDArray[np.uint8] | None:
    """(channels, height, width) of the picture at `path`; None if it is not a readable one."""
    channels, height, width = shape
    try:
        with Image.open(path, formats=FORMATS) as found:
            if found.width * found.height > LARGEST:
                return None
            plain = _eight_bits(found).convert("L" if channels == 1 else "RGB")
            plain = plain.resize((width, height), Image.Resampling.BILINEAR)
    except Exception:
        # Broken bytes make Pillow raise nearly anything; each means the same here.
        return None
    pixels = np.asarray(plain, np.uint8)
    return pixels[None] if channels == 1 else np.moveaxis(pixels, -1, 0)


def _eight_bits(found: Image.Image) -> Image.Image:
    """Deeper grey scaled to 0 … 255, where Pillow would cut it off."""
    if found.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(found) >> 8).astype(np.uint8))
    if found.mode in ("I", "F"):  # no stated range: what is there fills it
        values = np.asarray(found, np.float64)
        low, span = values.min(), np.ptp(values) or 1.0
        return Image.fromarray(((values - low) / span * 255).round().astype(np.uint8))
    return found


def read_folder(folder: Path, shape: Shape) -> tuple[NDArray[np.uint8], int, str]:
    """Pictures under `folder` (n, channels, height, width), the number of other files, and a digest
    of the pixels. Decoded once into a nameless file that is mapped: many need not fit in memory."""
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
                f"give a folder with {', '.join(FORMATS[:-1])} or {FORMATS[-1]} files."
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
