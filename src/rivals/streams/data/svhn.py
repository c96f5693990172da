"""SVHN's cropped digits: MATLAB files with X (32, 32, 3, n) and y (n, 1), where 10 stands for 0."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from rivals.errors import RivalsError
from rivals.streams.data.decoded import Decoded, Images, Labels, Split

CHUNK = 4_096
BLOCK = 2**20  # bytes read at once
LARGEST = 100_000  # images; the training file has 73,257
UNPACKED = LARGEST * (32 * 32 * 3 + 8) + 2**20  # bytes of all that a file may hold
COMPRESSED = 15  # MATLAB's number of an element that zlib made smaller


def _check_unpacked(path: Path) -> None:
    """Refuse a file that unpacks to more than the largest; nothing of it is kept in memory."""
    total = 0
    with path.open("rb") as file:
        header = file.read(128)
        if header[126:128] not in (b"IM", b"MI"):
            raise ValueError("no header of MATLAB 5")
        order: Literal["little", "big"] = "little" if header[126:128] == b"IM" else "big"
        while len(tag := file.read(8)) == 8:
            kind, size = (int.from_bytes(tag[at : at + 4], order) for at in (0, 4))
            if kind != COMPRESSED:
                total += size
                file.seek(size, os.SEEK_CUR)
            else:
                total += _unpacked_size(file, size, UNPACKED - total)
            if total > UNPACKED:
                raise RivalsError(
                    f"{path} unpacks to more than {UNPACKED:,} bytes, but no official file does; "
                    "fetch the official file again."
                )


def _unpacked_size(file: BinaryIO, packed: int, most: int) -> int:
    """The bytes that the next `packed` bytes unpack to; counting ends above `most`."""
    unpacker, count = zlib.decompressobj(), 0
    while packed > 0 and (data := file.read(min(packed, BLOCK))):
        packed -= len(data)
        while data and count <= most:
            count += len(unpacker.decompress(data, BLOCK))
            data = unpacker.unconsumed_tail
        if count > most:
            break
    return count


def _expect(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """X and y must have matching shapes; this is checked in the headers, before unpacking."""
    image, label = shapes.get("X"), shapes.get("y")
    fits = (
        image is not None
        and label is not None
        and len(image) == 4
        and image[:3] == (32, 32, 3)
        and label == (image[3], 1)
        and 0 < image[3] <= LARGEST
    )
    if not fits:
        found = ", ".join(
            f"{name} {'×'.join(map(str, shape))}" for name, shape in sorted(shapes.items())[:4]
        )
        raise RivalsError(
            f"{path} holds {found or 'nothing'}, but X 32×32×3×n and y n×1 were expected; "
            "fetch the official file again."
        )


def _expect_kinds(path: Path, kinds: Mapping[str, str]) -> None:
    """Bytes and numbers: a list of objects of the same shape would take hundreds of times more."""
    if kinds["X"] != "uint8" or not re.fullmatch(r"u?int\d+|single|double|float\d+", kinds["y"]):
        raise RivalsError(
            f"{path} holds X of type {kinds['X']} and y of type {kinds['y']}, but bytes and "
            "numbers were expected; fetch the official file again."
        )


def _split(path: Path) -> Split:
    from scipy.io import loadmat, whosmat

    try:
        _check_unpacked(path)
        found = whosmat(str(path))
        _expect(path, {name: shape for name, shape, _ in found})
        _expect_kinds(path, {name: kind for name, _, kind in found})
        content: dict[str, Any] = loadmat(str(path), variable_names=["X", "y"])
    except RivalsError:
        raise
    except Exception as error:  # scipy raises many errors for a file that is not MATLAB
        raise RivalsError(
            f"{path} is not a readable MATLAB 5 file ({type(error).__name__}); "
            "remove it and fetch the official file again."
        ) from None
    images, marks = content["X"], content["y"]
    _expect(path, {"X": images.shape, "y": marks.shape})
    _expect_kinds(path, {"X": str(images.dtype), "y": str(marks.dtype)})
    labels: Labels = marks[:, 0].astype(np.int64)
    if labels.min() < 1 or labels.max() > 10:
        raise RivalsError(
            f"{path} has labels from {labels.min()} to {labels.max()}, but 1 to 10 were expected; "
            "fetch the official file again."
        )

    def chunks() -> Iterator[Images]:
        for start in range(0, len(labels), CHUNK):
            yield np.ascontiguousarray(images[..., start : start + CHUNK].transpose(3, 2, 0, 1))

    return Split(labels % 10, (3, 32, 32), chunks())


def read(files: Mapping[str, Path], size: int) -> Decoded:
    """Both splits of SVHN."""
    return Decoded(tuple("0123456789"), _split(files["train"]), _split(files["test"]))
