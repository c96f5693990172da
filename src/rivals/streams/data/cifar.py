"""CIFAR-10 and CIFAR-100: pickles in a tar.gz or in the folder it unpacks to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rivals.errors import RivalsError
from rivals.streams.data import pickles
from rivals.streams.data.archives import open_members
from rivals.streams.data.decoded import Decoded, Images, Labels, Reader, Split


@dataclass(frozen=True)
class Layout:
    """Names of the files, and the keys in them."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: str
    names: str


CIFAR10 = Layout(
    "cifar-10-batches-py",
    tuple(f"data_batch_{number}" for number in range(1, 6)),
    ("test_batch",),
    "batches.meta",
    "labels",
    "label_names",
)
CIFAR100 = Layout(
    "cifar-100-python", ("train",), ("test",), "meta", "fine_labels", "fine_label_names"
)


def _batch(data: bytes, name: str, key: str, classes: int) -> tuple[Images, Labels]:
    content = pickles.read(data, name)
    pixels: Any = content.get("data")
    if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.ndim == 2):
        raise RivalsError(
            f"{name} has no array of bytes under 'data'; fetch the official file again."
        )
    if pixels.shape[1] != 3072:
        raise RivalsError(
            f"{name} holds images of {pixels.shape[1]:,} bytes, but 32×32×3 = 3,072 were expected; "
            "fetch the official file again."
        )
    labels: Any = content.get(key)
    plain = isinstance(labels, list) and all(
        type(label) is int and 0 <= label < classes for label in labels
    )
    if not plain or len(labels) != len(pixels):
        raise RivalsError(
            f"{name} must have one '{key}' from 0 to {classes - 1} for each of its "
            f"{len(pixels):,} images; fetch the official file again."
        )
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, np.int64)


def reader(layout: Layout) -> Reader:
    """A reader for a CIFAR release with this layout."""

    def read(files: Mapping[str, Path], size: int) -> Decoded:
        path = files["archive"]
        wanted = [f"{layout.folder}/{name}" for name in (*layout.train, *layout.test, layout.meta)]
        with open_members(path) as members:
            # an unpacked folder may have been renamed; in an archive the name is fixed
            inner = path.name if path.is_dir() else layout.folder
            names = [f"{inner}/{name.rpartition('/')[2]}" for name in wanted]
            if path.is_dir():
                there = set(members.names())
                names = [name for name in names if name in there]
            held = {name.rpartition("/")[2]: data for name, data in members.each(set(names))}
        for name in wanted:
            if name.rpartition("/")[2] not in held:
                raise RivalsError(
                    f"{path} has no {name}, which was expected in it; "
                    "fetch the official file again."
                )
        meta = pickles.read(held[layout.meta], f"{path}:{layout.meta}").get(layout.names)
        if not isinstance(meta, list) or not all(isinstance(item, bytes | str) for item in meta):
            raise RivalsError(
                f"{path}:{layout.meta} has no list of class names under '{layout.names}'; "
                "fetch the official file again."
            )
        classes = tuple(
            item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in meta
        )

        def split(parts: tuple[str, ...]) -> Split:
            pairs = [
                _batch(held.pop(part), f"{path}:{part}", layout.labels, len(classes))
                for part in parts
            ]
            labels = np.concatenate([labels for _, labels in pairs])
            return Split(labels, (3, 32, 32), tuple(images for images, _ in pairs))

        return Decoded(classes, split(layout.train), split(layout.test))

    return read
