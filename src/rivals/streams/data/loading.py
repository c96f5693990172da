"""Load a data set by name: find the official files, check them, decode them once, map them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.streams.data import cache, cifar, idx, notmnist, omniglot, svhn, tiny_imagenet
from rivals.streams.data.catalogue import dataset
from rivals.streams.data.checksums import checksum
from rivals.streams.data.decoded import (
    Decoded,
    Images,
    Labels,
    Reader,
    check_classes,
    subset_sentence,
)
from rivals.streams.data.find import Located, locate

READERS: dict[str, Reader] = {
    "mnist": idx.reader(idx.DIGITS),
    "fashion-mnist": idx.reader(idx.GARMENTS),
    "cifar-10": cifar.reader(cifar.CIFAR10),
    "cifar-100": cifar.reader(cifar.CIFAR100),
    "svhn": svhn.read,
    "notmnist": notmnist.read,
    "omniglot": omniglot.read,
    "tiny-imagenet": tiny_imagenet.read,
}


@dataclass(frozen=True)
class SplitArrays:
    """One split: images in a memory-mapped file, the rest in memory."""

    path: Path
    labels: Labels
    extra: Mapping[str, NDArray[Any]]

    @property
    def images(self) -> Images:
        """A new memory map each time: its pages are freed when the array is deleted."""
        mapped: Images = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return mapped


@dataclass(frozen=True)
class Loaded:
    """A data set that is ready to use."""

    name: str
    classes: tuple[str, ...]
    train: SplitArrays
    test: SplitArrays
    fingerprint: str  # of the source files
    subset: str  # "" if complete


def sums(located: Located, again: bool = False) -> dict[str, str]:
    """The MD5 of each source."""
    return {role: checksum(path, again) for role, path in sorted(located.files.items())}


def fingerprint(name: str, found: Mapping[str, str]) -> str:
    """A short identifier of the source files."""
    text = "\n".join(f"{role} {md5}" for role, md5 in sorted(found.items()))
    return f"{name}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def key(mark: str, size: int) -> str:
    """The key of the cache entry: sources, image size and cache format."""
    return f"{mark.rpartition(':')[2]}-{size}-{cache.FORMAT}"


def decode(located: Located, size: int = 0) -> Decoded:
    """Read the official files and check the classes; images are decoded chunk by chunk later."""
    decoded = READERS[located.dataset.name](located.files, size)
    check_classes(located.dataset, decoded)
    return decoded


def load(name: str, size: int = 0) -> Loaded:
    """The data set `name`, with images of `size`² pixels if its reader can resize (0: original)."""
    entry = dataset(name)
    located = locate(entry)
    mark = fingerprint(name, sums(located))
    place = cache.place(name, key(mark, size))
    held = cache.fetch(entry.title, place, lambda: decode(located, size))

    def part(word: str) -> SplitArrays:
        mine = {
            label.removeprefix(f"{word}-"): values
            for label, values in held.arrays.items()
            if label.startswith(f"{word}-")
        }
        del mine["images"]
        return SplitArrays(place / f"{word}-images.npy", mine.pop("labels"), mine)

    return Loaded(
        name, held.classes, part("train"), part("test"), mark, subset_sentence(entry, held.counts)
    )
