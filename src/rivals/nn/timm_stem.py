"""A backbone of timm as a stem: its pooled features, all of one length.

    pictures ─► resized, where they have another size ─► backbone (frozen) ─► length √d: (n, d)

Backbones differ in how large their features are. With one length for all of them, the squares of
features have the mean 1, and what is compared with features need not know which backbone it was.

A backbone is built from its name, which timm must know, and from tensors. Neither is trusted: sizes
are computed without memory first, and compared with those of the tensors.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.io.reading import printable
from rivals.nn.stem import Stem
from rivals.nn.timm_library import check_architecture, library

ARCHITECTURE = re.compile(r"[a-z0-9_]{1,100}")
SPREAD = 0.5  # of features of one length around the means of their classes, about
AT_ONCE = 16  # pictures, so that memory stays bounded where they are large
SIDES = (8, 256)  # pixels
LARGEST = 2**28  # bytes of its weights
MOST_FEATURES = 4096
FAILS = (RuntimeError, ValueError, TypeError, AssertionError, NotImplementedError, IndexError)
HEADLESS = {"num_classes": 0}
Shapes = dict[str, tuple[int, ...]]


class TimmStem(Stem):
    """A backbone of timm, frozen.

    Args:
        architecture: Its name in timm.
        side: Pixels a side of the pictures that it looks at.
        network: The backbone, with its weights.
    """

    word = "timm"

    def __init__(self, architecture: str, side: int, network: nn.Module) -> None:
        try:
            with torch.no_grad():
                found = network.eval()(torch.zeros(1, 3, side, side))
        except FAILS as error:
            raise RivalsError(
                f"timm's '{architecture}' cannot look at pictures of {side} pixels a side; choose "
                "another --size."
            ) from error
        if found.dim() != 2 or not 1 <= found.shape[1] <= MOST_FEATURES:
            raise RivalsError(
                f"timm's '{architecture}' does not end in a row of at most {MOST_FEATURES:,} "
                "features; choose another backbone."
            )
        super().__init__(network, found.shape[1], SPREAD)
        self.architecture, self.side = architecture, side

    def compute(self, images: Tensor) -> Tensor:
        """Features of prepared pictures; grey ones stand for three equal colours."""
        if not torch.compiler.is_compiling() and len(images) > AT_ONCE:
            return torch.cat([self.compute(some) for some in torch.split(images, AT_ONCE)])
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        if images.shape[-2:] != (self.side, self.side):
            smaller = max(images.shape[-2:]) > self.side
            images = F.interpolate(
                images, (self.side,) * 2, mode="bilinear", align_corners=False, antialias=smaller
            )
        return F.normalize(self.network(images), dim=1) * math.sqrt(self.features)

    def facts(self) -> dict[str, Any]:
        return {"architecture": self.architecture, "side": self.side, **super().facts()}

    def tensors(self) -> dict[str, Tensor]:
        """What was trained of it."""
        return self.network.state_dict()


@cache
def shapes_of_backbone(architecture: str, classifier: bool = False) -> Shapes:
    """The names and shapes of what is trained of a backbone; it is built without memory."""
    if not ARCHITECTURE.fullmatch(architecture):
        raise RivalsError(
            f"'{printable(architecture, 100)}' is no name of a network of timm; use one of its "
            "small letters, digits and underscores, such as timm:resnet18."
        )
    check_architecture(architecture)
    with torch.device("meta"):
        network = _create(architecture, **({} if classifier else HEADLESS))
    shapes = {name: tuple(t.shape) for name, t in network.state_dict().items()}
    size = 4 * sum(math.prod(shape) for shape in shapes.values())
    if size > LARGEST:
        raise RivalsError(
            f"timm's '{architecture}' has {size:,} bytes of weights, but at most {LARGEST:,} are "
            "allowed; choose a smaller backbone."
        )
    return shapes


def first_misfit(found: Mapping[str, tuple[int, ...]], architecture: str) -> str:
    """The first tensor that a backbone has not, misses, or has in another shape; else nothing."""
    wanted = shapes_of_backbone(architecture)
    return next((n for n in {**wanted, **found} if found.get(n) != wanted.get(n)), "")


def build_stem(architecture: str, side: int, tensors: Mapping[str, Tensor]) -> TimmStem:
    """The stem with these tensors; a ValueError says which of them does not fit."""
    if not SIDES[0] <= side <= SIDES[1]:
        raise ValueError(f"has pictures of {side} pixels a side")
    problem = first_misfit({name: tuple(t.shape) for name, t in tensors.items()}, architecture)
    if problem:
        raise ValueError(f"does not fit timm's '{architecture}' at {printable(problem, 100)}")
    network = _create(architecture, **HEADLESS)
    network.load_state_dict(dict(tensors), strict=False)  # names were compared; torch adds counters
    return TimmStem(architecture, side, network)


def download(name: str) -> dict[str, Tensor]:
    """The trained tensors of a backbone, from the hub or the cache of an earlier download."""
    network = _create(name, pretrained=True, **HEADLESS)
    return {key: tensor.float() for key, tensor in network.state_dict().items()}


def _create(name: str, **options: Any) -> nn.Module:
    """A network of timm; only what is trained is in its state."""
    chance = torch.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network: nn.Module = library().create_model(name, **options)
    except FAILS as error:
        if "pretrained" in options:
            raise
        reason = str(error).partition("\n")[0]
        raise RivalsError(
            f"timm's '{name}' cannot be a backbone ({printable(reason, 100)}); choose another."
        ) from error
    finally:
        torch.set_rng_state(chance)  # the numbers that others draw do not depend on it
    for module in network.modules():
        for key, buffer in list(module.named_buffers(recurse=False)):
            if not buffer.is_floating_point():  # counters and tables
                module.register_buffer(key, buffer, persistent=False)
    return network.requires_grad_(False)
