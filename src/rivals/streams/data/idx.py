"""The IDX files of MNIST and Fashion-MNIST, gzipped or not."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.streams.data.archives import damage_in_words
from rivals.streams.data.decoded import Decoded, Images, Labels, Reader, Split

DIGITS = tuple("0123456789")
GARMENTS = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle-boot",
)
LARGEST = 64 * 2**20  # bytes; MNIST's largest file holds 47 MB


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The uint8 array in `path`; never reads more bytes than its header declares."""
    opened = gzip.open if path.suffix == ".gz" else open
    broken = (EOFError, zlib.error, gzip.BadGzipFile)
    with damage_in_words(path, "gzip file", broken), opened(path, "rb") as file:
        header = file.read(4 + 4 * dimensions)
        if len(header) < 4 + 4 * dimensions or header[:4] != bytes((0, 0, 8, dimensions)):
            raise RivalsError(
                f"{path} does not begin as an IDX file of {dimensions} dimensions; "
                "remove it and fetch the official file again."
            )
        shape = tuple(np.frombuffer(header, ">u4", dimensions, 4).tolist())
        declared = math.prod(shape)
        if declared > LARGEST:
            raise RivalsError(
                f"{path} declares {declared:,} bytes, but no official file has more than "
                f"{LARGEST:,}; remove it and fetch the official file again."
            )
        data = file.read(declared + 1)
    if len(data) != declared:
        found = "more than" if len(data) > declared else f"{len(data):,} of"
        raise RivalsError(
            f"{path} holds {found} the {declared:,} bytes its header declares; "
            "remove it and fetch the official file again."
        )
    return np.frombuffer(data, np.uint8).reshape(shape)


def _split(images_path: Path, labels_path: Path, classes: int) -> Split:
    images: Images = read_idx(images_path, 3)[:, None]
    labels: Labels = read_idx(labels_path, 1).astype(np.int64)
    if images.shape[2:] != (28, 28):
        raise RivalsError(
            f"{images_path} holds images of {images.shape[2]}×{images.shape[3]} pixels, but 28×28 "
            "were expected; fetch the official file again."
        )
    if len(images) != len(labels):
        raise RivalsError(
            f"{images_path} holds {len(images):,} images, but {labels_path.name} has "
            f"{len(labels):,} labels; fetch both official files again."
        )
    if len(labels) and labels.max() >= classes:
        raise RivalsError(
            f"{labels_path} has a label {labels.max()}, but they must lie from 0 to {classes - 1}; "
            "fetch the official file again."
        )
    return Split(labels, (1, 28, 28), (images,))


def reader(classes: tuple[str, ...]) -> Reader:
    """A reader for the four IDX files of a data set with these classes."""

    def read(files: Mapping[str, Path], size: int) -> Decoded:
        train = _split(files["train-images"], files["train-labels"], len(classes))
        test = _split(files["test-images"], files["test-labels"], len(classes))
        return Decoded(classes, train, test)

    return read
