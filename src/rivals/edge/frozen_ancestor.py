"""The ancestor of a model, read without torch: shipped with the package, or a file of the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rivals.ancestors.shipped_file import LARGEST, PREPARED, SHIPPED, shipped_file
from rivals.edge.array_file import Arrays, arrays_of
from rivals.edge.card import check_preprocessing
from rivals.edge.frozen_body import NETWORK, NORM, FrozenBody, layer_shapes, recoloured_array
from rivals.errors import RivalsError
from rivals.io.reading import printable
from rivals.model.manifest import Description
from rivals.model.stored_file import in_words, read_stored
from rivals.naming.class_sums import RIDGE, symmetric
from rivals.naming.feature_space import FeatureSpace, shipped_space
from rivals.streams.preprocessing import Preprocessing, as_ancestor, centred


@dataclass(frozen=True)
class FrozenAncestor:
    """Weights and norms layer by layer, and the covariance of the features that they give."""

    name: str
    sha256: str
    widths: tuple[int, ...]
    tensors: Arrays
    own: bool = False  # made by a user

    @property
    def channels(self) -> int:
        """Of the pictures that it was trained on."""
        return len(self.tensors[PREPARED[0]]) if PREPARED[0] in self.tensors else 3

    @cached_property
    def within(self) -> NDArray[np.float32]:
        """(d, d): the covariance of its features around the means of classes."""
        found = self.tensors["within"].astype(np.float32)
        if found.ndim == 1:
            found = symmetric(found, self.widths[-1]).astype(np.float32)
        return found

    @cached_property
    def space(self) -> FeatureSpace:
        """Where tasks are named by these features."""
        if self.own:
            return FeatureSpace(self.within)
        return shipped_space(self.name)

    def weights(self, channels: int) -> list[NDArray[np.float32]]:
        """Of every layer, (rows, columns, taps), for pictures of so many channels.

        With 16 bits each, as the network of a model keeps them.
        """
        found = [self.tensors[f"layer{n}.weight"] for n in range(self.layers)]
        found[0] = recoloured_array(found[0], self.channels, channels)
        return [each.astype(np.float16).astype(np.float32) for each in found]

    @property
    def norms(self) -> list[Arrays]:
        names = [{name: f"layer{n}.norm.{name}" for name in NORM} for n in range(self.layers)]
        return [{name: self.tensors[key] for name, key in each.items()} for each in names]

    @property
    def layers(self) -> int:
        return len(layer_shapes(self.widths, 3))

    def body(self, channels: int) -> FrozenBody:
        return FrozenBody(self.widths, self.weights(channels), self.norms)

    def preparation(self, channels: int) -> Preprocessing:
        """How bytes are prepared for it."""
        if PREPARED[0] not in self.tensors:
            return centred(channels)
        mean, std = (self.tensors[name].tolist() for name in PREPARED)
        return as_ancestor(mean, std, channels)


@cache
def shipped_ancestor(name: str) -> FrozenAncestor:
    """One of those that come with the package."""
    facts, data = shipped_file(name)
    return FrozenAncestor(name, facts["sha256"], tuple(facts["widths"]), arrays_of(data))


def ancestor_of(model: Path, content: Description) -> FrozenAncestor:
    """The ancestor of a model; a network that only torch can run is refused."""
    wanted = content.ancestor
    if wanted is None or wanted.timm or content.network != NETWORK:
        began = f"a backbone of timm, '{wanted.timm}'" if wanted and wanted.timm else "no ancestor"
        if wanted and not wanted.timm:
            began = f"an ancestor of the network '{content.network}'"
        raise RivalsError(
            f"The model {model} began with {began}, and without torch only '{NETWORK}' can be run, "
            "which tiny and small are; use `rivals`, or export a task with `rivals export`."
        )
    if wanted.file is None:
        found = shipped_ancestor(wanted.name) if wanted.name in SHIPPED else None
        if found is None or found.sha256 != wanted.sha256:
            raise RivalsError(
                f"The model begins with the ancestor '{printable(wanted.name)}', which this "
                "version of rivals does not have; use the version that made the model."
            )
        return found
    what = "the file of its ancestor"
    data = read_stored(model, wanted.file, wanted.sha256, min(wanted.bytes or 0, LARGEST), what)
    widths = tuple(width // content.rivals for width in content.widths)
    with in_words(model, what):
        made = FrozenAncestor(wanted.name, wanted.sha256, widths, arrays_of(data), own=True)
        _check(made)
    return made


def _check(made: FrozenAncestor) -> None:
    """Refuse tensors that do not fit the network, and numbers that no network has."""
    last = made.widths[-1]
    found = {name: each.shape for name, each in made.tensors.items()}
    for name in PREPARED:
        if found.pop(name, None) not in ((1,), (3,)):
            raise ValueError(f"does not have a number for each channel in {name}")
    if found.pop("within", None) not in ((last, last), (last * (last + 1) // 2,)):
        raise ValueError("has a covariance of an impossible shape")
    wanted: dict[str, tuple[int, ...]] = {}
    for number, shape in enumerate(layer_shapes(made.widths, made.channels)):
        wanted[f"layer{number}.weight"] = shape
        wanted |= {f"layer{number}.norm.{name}": shape[:1] for name in NORM}
    if found != wanted or len({made.tensors[name].shape for name in PREPARED}) > 1:
        raise ValueError("does not fit its network")
    check_preprocessing(255.0, *(made.tensors[name].tolist() for name in PREPARED))
    if any((t < 0).any() for name, t in made.tensors.items() if name.endswith(".norm.var")):
        raise ValueError("has a negative variance")
    within = made.within.astype(np.float64)
    ridge = RIDGE * within.diagonal().mean()
    try:
        np.linalg.cholesky(within + ridge * np.eye(last))
    except np.linalg.LinAlgError as error:
        raise ValueError("has a covariance that is none") from error
    if not math.isfinite(ridge) or not np.array_equal(within, within.T):
        raise ValueError("has a covariance that is none")
