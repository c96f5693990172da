"""Ancestors by name, and those that users made: their folders, and the copy that a model keeps.

    known/ancestor.safetensors   weights, norms, covariance, and how pictures are prepared
    known/ancestor.json          its card: shape, what it was trained on, checksums of the tensors
                                 and of the card itself

A folder may come from elsewhere: types, shapes and sizes are checked before memory is taken, and
its numbers before anything is computed with them. A model keeps the file of tensors among those of
its tasks, so it needs the folder no longer. So it does with the weights of a backbone of timm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from rivals.ancestors import NO_ANCESTOR, SHIPPED
from rivals.ancestors.ancestor import Ancestor, shipped, whole_covariance, width_of
from rivals.ancestors.shipped_file import LARGEST, PREPARED
from rivals.ancestors.timm_backbone import INNER, SLACK, Backbone, find_backbone, is_backbone
from rivals.edge.card import check_preprocessing
from rivals.errors import RivalsError, unknown
from rivals.io.files import digest
from rivals.io.reading import parse_json, printable, read_bytes
from rivals.io.seal import checksum
from rivals.model import limits, stored_file, task_file
from rivals.model.manifest import (
    AncestorName,
    Checksum,
    Description,
    KnownNetwork,
    Name,
    Side,
    file_name,
)
from rivals.model.network_size import check_network_size
from rivals.naming.discriminant import RIDGE
from rivals.nn import timm_stem
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed

FILE, CARD = "ancestor.safetensors", "ancestor.json"
FORMAT = 1
CARD_BYTES = 2**20
TYPES = {"F16", "F32"}  # of weights, norms and covariance
MOST_FEATURES = limits.WIDTH // limits.RIVALS  # the width of a ticket
Width = Annotated[int, Field(ge=1, le=MOST_FEATURES)]


AnyAncestor = Ancestor | Backbone


def find(name: str) -> AnyAncestor:
    """The ancestor that a user names: shipped, a backbone of timm, or the folder of another."""
    if name in SHIPPED:
        return shipped(name)
    if is_backbone(name):
        return find_backbone(name)
    folder = Path(name)
    if not folder.exists() and folder.name == name:
        raise unknown("ancestor", name, (NO_ANCESTOR, *SHIPPED))
    return read(folder)


def of_model(model: Path, content: Description) -> AnyAncestor:
    """The ancestor that the description of a model names: shipped, or a file of the model."""
    wanted = content.ancestor
    assert wanted is not None
    if wanted.file is None:
        found = shipped(wanted.name) if wanted.name in SHIPPED else None
        if found is None or found.sha256 != wanted.sha256:
            raise RivalsError(
                f"The model begins with the ancestor '{printable(wanted.name)}', which this "
                "version of rivals does not have; use the version that made the model."
            )
        return found
    assert wanted.bytes is not None
    what = "the file of its ancestor"
    most = timm_stem.LARGEST + SLACK if wanted.timm else LARGEST
    size = min(wanted.bytes, most)
    data = stored_file.read_stored(model, wanted.file, wanted.sha256, size, what)
    with stored_file.in_words(model, what):
        tensors = load_backbone(data, wanted.timm) if wanted.timm else load(data)
    if wanted.timm:
        card = {"trained_on": wanted.trained_on, "terms": wanted.terms}
        side = content.input_shape[1]
        return Backbone(wanted.name, wanted.sha256, wanted.timm, side, tensors, card)
    widths = tuple(width // content.rivals for width in content.widths)
    facts = {"trained_on": wanted.trained_on, "terms": wanted.terms}
    return Ancestor(wanted.name, wanted.sha256, content.network, widths, tensors, facts, data)


def name_of(ancestor: AnyAncestor) -> AncestorName:
    """How a model names its ancestor; one that is not shipped becomes a file of the model."""
    if not ancestor.data:
        return AncestorName(ancestor.name, ancestor.sha256)
    words = {name: str(ancestor.card.get(name) or "") for name in ("trained_on", "terms")}
    timm = ancestor.architecture if isinstance(ancestor, Backbone) else None
    return AncestorName(
        ancestor.name, ancestor.sha256, file_name(ancestor.sha256), len(ancestor.data), timm,
        **{name: printable(text, limits.WORDS - 1) for name, text in words.items()},
    )  # fmt: skip


# Folders -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Card:
    """What a card must say; it may say more."""

    name: Name
    sha256: Checksum  # of the tensors
    card_sha256: Checksum
    architecture: KnownNetwork
    widths: Annotated[tuple[Width, ...], Field(min_length=1, max_length=limits.WIDTHS)]
    input_shape: tuple[Literal[1, 3], Side, Side]
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)


def read(folder: Path) -> Ancestor:
    """The ancestor in a folder; what is missing, altered or does not fit is refused."""
    if not folder.is_dir():
        raise RivalsError(
            f"There is no folder {folder} with an ancestor; make one with `rivals ancestor make "
            f"SOURCE --out {folder}`."
        )
    if not (folder / CARD).exists():
        raise RivalsError(
            f"{folder} holds no ancestor; make one of a model, a run or a ticket with `rivals "
            "ancestor make SOURCE --out FOLDER`."
        )
    card = read_bytes(folder / CARD, "card of the ancestor", CARD_BYTES, folder)
    return parse(card, read_bytes(folder / FILE, "ancestor", LARGEST, folder), folder)


def parse(card: bytes, data: bytes, place: Path) -> Ancestor:
    """Check the card and the tensors of an ancestor; `place` is what error messages name."""
    facts = parse_json(card, f"The card {place / CARD}")
    stated = facts.get("format", FORMAT)
    if type(stated) is not int or not 1 <= stated <= FORMAT:
        raise RivalsError(
            f"The ancestor {place} has format {printable(str(stated), 20)}, and this version reads "
            f"{FORMAT}; use the version of rivals that wrote it."
        )
    known = _checked_card(card, place)
    for name, right in (
        (CARD, known.card_sha256 == card_checksum(facts)), (FILE, known.sha256 == digest(data)),
    ):  # fmt: skip
        if not right:
            raise RivalsError(
                f"The ancestor {place} was altered: {name} has another checksum than {CARD} says; "
                "bring back both files, or make it anew."
            )
    try:
        tensors = load(data)
        found = Ancestor(
            known.name, known.sha256, known.architecture, known.widths, tensors, facts, data
        )
        shape = (found.channels, *known.input_shape[1:])
        check_network_size(found.network(1), shape)
        problem = found.misfit(NetworkPlan(found.network(1), shape).rivals(Seed(0)))
        if problem:
            raise ValueError(f"does not have the shape that {CARD} says: {printable(problem, 80)}")
    except (ValueError, RuntimeError) as error:  # torch: nothing is left of such small pictures
        what = error if isinstance(error, ValueError) else "cannot look at pictures of its size"
        raise RivalsError(
            f"The ancestor {place} is damaged: {FILE} {what}; bring back both files, or make it "
            "anew."
        ) from error
    return found


def card_checksum(facts: dict[str, Any]) -> str:
    """Of everything in a card but itself."""
    return checksum({key: value for key, value in facts.items() if key != "card_sha256"})


def _checked_card(card: bytes, place: Path) -> _Card:
    try:
        return _card().validate_json(card)
    except ValidationError as error:
        where = "/".join(map(str, error.errors(include_url=False)[0]["loc"])) or "the whole"
        raise RivalsError(
            f"The ancestor {place} cannot be used: its card {CARD} is not as it should be at "
            f"{printable(where, 80)}; make it anew with `rivals ancestor make`."
        ) from error


@cache
def _card() -> TypeAdapter[_Card]:
    return TypeAdapter(_Card)


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of an ancestor that somebody made; a ValueError is their damage.

    Shapes are not yet compared with those of a network.
    """
    for name, (kind, shape) in stored_file.shapes_of(data).items():
        if name in PREPARED:
            if (kind, shape) not in (("F64", (1,)), ("F64", (3,))):
                raise ValueError(f"does not have a number for each channel in {name}")
        elif kind not in TYPES:
            raise ValueError(f"has numbers of the type {printable(kind, 20)}")
        elif name == "within" and not is_symmetric(shape):
            raise ValueError("has a covariance of an impossible shape")
    tensors = task_file.tensors_of(data)
    missing = [name for name in (*PREPARED, "within") if name not in tensors]
    if missing:
        raise ValueError(f"has no {missing[0]}")
    check_preprocessing(255.0, *(tensors[name].tolist() for name in PREPARED))
    if any(bool((t < 0).any()) for name, t in tensors.items() if name.endswith(".norm.var")):
        raise ValueError("has a negative variance")
    if not is_covariance(tensors["within"]):
        raise ValueError("has a covariance that is none")
    return tensors


def load_backbone(data: bytes, architecture: str) -> dict[str, Tensor]:
    """The tensors of a backbone that a model keeps; a ValueError is their damage.

    They are compared with what timm builds under that name before they are loaded.
    """
    shapes = stored_file.shapes_of(data)
    found = {name: shapes.pop(name, None) for name in PREPARED}
    if any(each != ("F64", (3,)) for each in found.values()):
        raise ValueError("does not say how pictures are prepared")
    if any(kind != "F32" or not name.startswith(INNER) for name, (kind, _) in shapes.items()):
        raise ValueError("holds something else than weights")
    inner = {name.removeprefix(INNER): shape for name, (_, shape) in shapes.items()}
    problem = timm_stem.first_misfit(inner, architecture)
    if problem:
        raise ValueError(f"does not fit timm's '{architecture}' at {printable(problem, 80)}")
    tensors = task_file.tensors_of(data)
    check_preprocessing(255.0, *(tensors[name].tolist() for name in PREPARED))
    return tensors


def is_symmetric(shape: tuple[int, ...]) -> bool:
    """Whether a matrix, or one half of it, can be the covariance of a network's features."""
    width = shape[0] if len(shape) == 2 else width_of(math.prod(shape))
    whole, half = (width, width), (width * (width + 1) // 2,)
    return shape in (whole, half) and 1 <= width <= MOST_FEATURES


def is_covariance(within: Tensor) -> bool:
    """Whether a matrix can stand for the covariance of features: the discriminant solves by it."""
    found = whole_covariance(within).double()
    ridge = RIDGE * found.diagonal().mean() * torch.eye(len(found), dtype=found.dtype)
    factors: Any = torch.linalg.cholesky_ex(found + ridge)
    return torch.equal(found, found.T) and int(factors.info) == 0
