"""Any backbone of timm as an ancestor: frozen, cut at its pooled features, tickets above it.

    timm:NAME           weights from the hub, or from the cache of an earlier download
    timm:NAME=FILE      weights from a file: .safetensors, or .pth and .pt without any code in them

NAME is a name of timm, which may end in that of its weights (`resnet18.a1_in1k`). How pictures are
prepared, and their size, are what timm says of the weights. A model keeps a copy of the weights, so
that it needs the hub, or the file, no longer; only timm must be installed wherever it is used.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rivals.ancestors.ancestor import preparation_of
from rivals.ancestors.shipped_file import PREPARED
from rivals.errors import RivalsError, unknown
from rivals.io.files import digest
from rivals.io.reading import printable, read_bytes
from rivals.nn.network_plan import NetworkSettings
from rivals.nn.timm_library import library
from rivals.nn.timm_stem import (
    LARGEST,
    SIDES,
    Shapes,
    TimmStem,
    build_stem,
    download,
    first_misfit,
    shapes_of_backbone,
)
from rivals.streams.task import Preprocessing

PREFIX = "timm:"
INNER = "network."  # what the names of its tensors begin with in a file of ours
SLACK = 2**20  # bytes of a file of weights beside the weights
WRAPPERS = ("state_dict", "model", "model_state", "module")  # what checkpoints keep weights under
BODY = ("mlp", 128)  # of a ticket above the features: its kind, and its units


@dataclass(frozen=True)
class Backbone:
    """A trained backbone of timm, and what is known of it."""

    name: str
    sha256: str  # of its file in a model
    architecture: str
    side: int  # pixels a side of the pictures that it was trained on, or the most that we take
    tensors: dict[str, Tensor] = field(repr=False)  # its weights under INNER, and PREPARED
    card: dict[str, Any]
    data: bytes = field(default=b"", repr=False)  # that file, until a model has a copy

    def preparation(self, channels: int) -> Preprocessing:
        """How bytes are prepared for it."""
        return preparation_of(self.tensors, channels)

    def network(self, rivals: int) -> NetworkSettings:
        """The body above its features, `rivals` units in a block."""
        kind, width = BODY
        return NetworkSettings(architecture=kind, widths=(width * rivals,), units=rivals)

    def stem(self, side: int) -> TimmStem:
        """It as a module, for pictures of `side` pixels."""
        weights = {k.removeprefix(INNER): t for k, t in self.tensors.items() if k.startswith(INNER)}
        return build_stem(self.architecture, side, weights)


def is_backbone(name: str) -> bool:
    """Whether an ancestor's name is that of a backbone of timm."""
    return name.startswith(PREFIX)


def absolute(name: str) -> str:
    """The same name, its file found from any folder."""
    words, equals, file = name.partition("=")
    return f"{words}={Path(file).resolve()}" if equals else words


def find_backbone(name: str) -> Backbone:
    """The backbone that a user names, with its weights from a file or from the hub."""
    words, _, file = name.removeprefix(PREFIX).partition("=")
    architecture = words.partition(".")[0]
    shapes_of_backbone(architecture)  # refuses what timm does not know, or what is too large
    facts = _facts(words)
    weights = read_weights(Path(file), architecture) if file else _fetch(words)
    tensors = {f"{INNER}{key}": value for key, value in weights.items()}
    for key, numbers in zip(PREPARED, (facts.mean, facts.std), strict=True):
        tensors[key] = torch.tensor(numbers, dtype=torch.float64)
    data = safetensors.torch.save({key: t.contiguous() for key, t in tensors.items()})
    source = f"weights from the file {Path(file).name}" if file else "weights from the hub"
    card = {"trained_on": f"pictures that timm names for it ({source})", "terms": facts.license}
    return Backbone(
        f"{PREFIX}{words}", digest(data), architecture, _side(words, facts), tensors, card, data
    )


def _facts(words: str) -> Any:
    """What timm says of these weights: size of pictures, mean, deviation, licence."""
    timm, tags = library(), []
    architecture = words.partition(".")[0]
    if words != architecture:
        tags = [each for each in timm.list_pretrained() if each.startswith(f"{architecture}.")]
        if words not in tags:
            raise unknown("set of weights of timm", words, tags or [architecture])
    facts = timm.models.get_pretrained_cfg(words)
    if facts is None or tuple(facts.input_size)[:1] != (3,):
        raise RivalsError(
            f"timm does not say how pictures are prepared for '{words}'; choose another backbone."
        )
    return facts


def _side(words: str, facts: Any) -> int:
    """Pixels a side that a new model looks at."""
    side = int(facts.input_size[1])
    if side > SIDES[1] and facts.fixed_input_size:
        raise RivalsError(
            f"timm's '{words}' looks at pictures of {side} pixels a side and no others, but at "
            f"most {SIDES[1]} are possible; choose another backbone."
        )
    return min(side, SIDES[1])


# Weights -----------------------------------------------------------------------------------------


def _fetch(words: str) -> dict[str, Tensor]:
    """The weights from the hub."""
    try:
        with _hub():
            return download(words)
    except Exception as error:  # of the hub, of its connection: classes without a common name
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RivalsError(
            f"The weights of {PREFIX}{words} could not be fetched ({printable(reason, 120)}); "
            f"connect to the network, or give a file: {PREFIX}{words}=weights.safetensors."
        ) from error


@contextlib.contextmanager
def _hub() -> Iterator[None]:
    """The hub without its log; where no network is, its cache alone, for it would try for long."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    constants = importlib.import_module("huggingface_hub").constants
    offline, log = constants.HF_HUB_OFFLINE, logging.getLogger("huggingface_hub")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        if not getproxies():
            try:
                socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
            except OSError:
                constants.HF_HUB_OFFLINE = True
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        log.setLevel(before)


def read_weights(file: Path, architecture: str) -> dict[str, Tensor]:
    """The trained tensors in a file, named as timm names them; what does not fit is refused."""
    limit = 2 * LARGEST + SLACK  # a classifier is left out, and weights may have 64 bits
    data = read_bytes(Path(os.path.realpath(file)), "file of weights", limit)
    try:
        read = _from_safetensors if file.suffix == ".safetensors" else _from_torch
        found = _unwrapped(read(data))
        tensors = _fitting(found, architecture)
    except (ValueError, safetensors.SafetensorError) as error:
        what = error if isinstance(error, ValueError) else "is no .safetensors file"
        raise RivalsError(
            f"The file {file} {what}; give weights of timm's '{architecture}', as .safetensors or "
            "as a state_dict in .pth."
        ) from error
    return tensors


def _from_safetensors(data: bytes) -> Any:
    return safetensors.torch.load(data)


def _from_torch(data: bytes) -> Any:
    """A file of torch.save; only tensors and plain values are read from it, never code."""
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if sum(each.file_size for each in archive.infolist()) > len(data) + SLACK:
                    raise ValueError("unpacks to more than it holds")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the age of a pickle
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, LookupError, AttributeError,
            zipfile.BadZipFile, TypeError) as error:  # fmt: skip
        raise ValueError("holds no weights alone, and code is not run") from error


def _unwrapped(found: Any) -> dict[str, Tensor]:
    """The tensors of a checkpoint, whatever it keeps them under."""
    for name in WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if not isinstance(found, Mapping):
        raise ValueError("holds no tensors by name")
    tensors = {str(k): t for k, t in found.items() if isinstance(t, Tensor)}
    if tensors and all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): t for name, t in tensors.items()}
    return tensors


def _fitting(found: dict[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """Those that the backbone needs, if all are there and no others but those of a classifier."""
    wanted = shapes_of_backbone(architecture)
    classifier = shapes_of_backbone(architecture, classifier=True).keys() - wanted.keys()
    numbers = {k: t for k, t in found.items() if t.is_floating_point()}
    if "_conv_stem.weight" in numbers:
        numbers = _from_efficientnet_pytorch(numbers, wanted)
    chosen = {k: t for k, t in numbers.items() if k not in classifier}
    problem = first_misfit({k: tuple(t.shape) for k, t in chosen.items()}, architecture)
    if problem:
        raise ValueError(f"does not fit the backbone at '{printable(problem, 100)}'")
    tensors = {k: chosen[k].detach().float().contiguous() for k in wanted}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ValueError("has numbers that are not finite")
    return tensors


def _from_efficientnet_pytorch(found: dict[str, Tensor], wanted: Shapes) -> dict[str, Tensor]:
    """The names of the package efficientnet_pytorch, and of those that follow it, as timm's."""
    outer = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
    whole = {"_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
             "_project_conv": "conv_pwl", "_bn2": "bn3"}  # fmt: skip
    first = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw",
             "_bn2": "bn2"}  # fmt: skip
    squeeze = {"_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
    blocks = _blocks(wanted)
    renamed = {}
    for name, tensor in found.items():
        place, _, rest = name.removeprefix("_blocks.").partition(".")
        if name.startswith("_fc."):
            continue
        before, inner = "", outer
        if name.startswith("_blocks.") and place.isdigit() and int(place) < len(blocks):
            before, name = blocks[int(place)], rest
            widens = f"_blocks.{place}._expand_conv.weight" in found
            inner = (whole if widens else first) | squeeze
        part, _, kind = name.partition(".")
        renamed[f"{before}{inner.get(part, part)}.{kind}"] = tensor
    return renamed


def _blocks(names: Iterable[str]) -> list[str]:
    """`blocks.STAGE.BLOCK.` in the order of the forward pass."""
    inner = [name.split(".") for name in names if name.startswith("blocks.")]
    places = sorted({(int(parts[1]), int(parts[2])) for parts in inner if parts[2].isdigit()})
    return [f"blocks.{stage}.{block}." for stage, block in places]
