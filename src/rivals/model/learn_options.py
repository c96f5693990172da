"""What a user may ask of learning, and the new model that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rivals.ancestors import DEFAULT, NO_ANCESTOR, SHIPPED
from rivals.ancestors.ancestor import shipped
from rivals.errors import RivalsError
from rivals.model import ancestor_file, defaults
from rivals.model.ancestor_file import AnyAncestor
from rivals.model.folder import ModelFolder
from rivals.model.manifest import Description
from rivals.streams import picture_source
from rivals.streams.augment import AUGMENTATIONS
from rivals.streams.picture_source import PictureSource

AUTO = "auto"  # the pictures decide


def share_of_new(text: float | str | None) -> float | None:
    """The share of blocks that get a new unit, as a user says it; None: the pictures decide."""
    if text is None or text == AUTO:
        return None
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise RivalsError(f"--new is {text}, but is a share from 0 to 1, or auto.")
    return share


@dataclass(frozen=True)
class LearnOptions:
    """What a user may ask of learning."""

    again: bool = False  # refine a task that is known
    anew: bool = False  # learn a task that is known from these pictures alone
    strict: bool = False  # refuse a folder with files that cannot be learned from
    minutes: float | None = None  # for all of it
    ram: float | None = None  # MB of this process
    network: str | None = None  # of a new model
    size: int | None = None  # pixels a side, of a new model
    grey: bool | None = None  # a new model without colours
    ancestor: str | None = None  # of a new model: small (the default), tiny, none, or another
    new: float | None = None  # share of blocks that get a new unit; None: the pictures decide
    epochs: int | None = None
    augmentation: str | None = None
    seed: int | None = None  # of a new model

    def __post_init__(self) -> None:
        """Refuse what could not work before any picture is read."""
        if self.again and self.anew:
            raise RivalsError(
                "--again adds pictures to a task and --anew replaces it; leave one of them out."
            )
        if self.epochs is not None and self.epochs < 1:
            raise RivalsError(f"--epochs is {self.epochs}, but must be at least 1.")
        if self.augmentation is not None and self.augmentation not in AUGMENTATIONS:
            known = ", ".join(AUGMENTATIONS[:-1])
            raise RivalsError(
                f"--augment is '{self.augmentation}'; use {known} or {AUGMENTATIONS[-1]}."
            )
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise RivalsError(f"--seed is {self.seed}, but must be at least 0 and below 2^63.")
        share_of_new(self.new)
        if self.network is not None and self.ancestor not in (None, NO_ANCESTOR):
            raise RivalsError(
                f"--network {self.network} and --ancestor {self.ancestor} do not go together: an "
                "ancestor brings its own network; leave one of them out."
            )

    @property
    def chooses_nothing(self) -> bool:
        """Whether it is left to the pictures how they are learned."""
        options = (self.network, self.new, self.epochs, self.augmentation)
        return all(each is None for each in options)

    def find_ancestor(self) -> AnyAncestor | None:
        """The ancestor of a new model; a network that was asked for has none."""
        if self.ancestor is None:
            found = shipped(DEFAULT)
            small = self.size is not None and self.size < defaults.SIDES[0]
            if self.network is not None or (small and not defaults.looks_at(found, self.size or 0)):
                return None
            return found
        return None if self.ancestor == NO_ANCESTOR else ancestor_file.find(self.ancestor)

    def check_existing(self, model: ModelFolder) -> None:
        """Refuse options that only a new model can follow, unless the model is just so."""
        content = model.description
        channels, side, _ = content.input_shape
        asked = {
            "network": (self.network, content.network), "size": (self.size, side),
            "grey": (self.grey, channels == 1), "seed": (self.seed, content.seed),
            "ancestor": (self.ancestor, self._found_ancestor(content)),
        }  # fmt: skip
        for option, (wanted, found) in asked.items():
            if wanted is not None and wanted != found:
                given = f"--{option}" if wanted is True else f"--{option} {wanted}"
                raise RivalsError(
                    f"{given} is for a new model, but {model.path} was made with {option} {found}; "
                    "leave it out, or choose another --model."
                )

    def _found_ancestor(self, content: Description) -> str:
        """The ancestor of a model, as the user names it if it is the same."""
        found = content.ancestor
        if found is None or found.file is None:
            return found.name if found else NO_ANCESTOR
        if found.timm and self.ancestor == found.name:  # wherever its weights came from
            return found.name
        asked = None if self.ancestor in SHIPPED else self.find_ancestor()
        same = asked is not None and asked.sha256 == found.sha256
        return str(self.ancestor) if same else f"{found.name} ({found.sha256[:8]})"


def new_model(
    source: PictureSource, wanted: LearnOptions, ancestor: AnyAncestor | None
) -> Description:
    """The model that suits the pictures of its first task."""
    side = picture_source.survey(source)
    grey = bool(wanted.grey) or source.sound is not None  # a spectrogram has no colours
    network, shape = defaults.plan(side, grey, wanted.network, wanted.size, ancestor)
    return Description(
        wanted.seed or 0, network.architecture, network.widths, network.units, shape, (),
        ancestor=ancestor_file.name_of(ancestor) if ancestor else None, sound=source.sound,
    )  # fmt: skip
