"""Sensible choices from the pictures: size and network of a new model, length of a training.

The size and the preparation of pictures belong to the model, not to a task: then one task's
statistics are not in another's ticket when it is dropped, and tickets of one shape run together.
"""

from __future__ import annotations

import math
from itertools import count

from rivals.ancestors import ANCESTORS_SIDES, fitting_side
from rivals.ancestors.ancestor import Ancestor
from rivals.ancestors.timm_backbone import Backbone
from rivals.errors import RivalsError, unknown
from rivals.learn.twta import CompetitionSettings, TWTASettings
from rivals.model.limits import NETWORKS, RIVALS
from rivals.model.network_size import check_network_size
from rivals.nn.network_plan import NetworkSettings
from rivals.streams.task import Preprocessing, centred

SIDES = (32, 48, 64)  # pixels; pictures are brought to the nearest
LARGEST_SIDE = 256
WORTH_NEW = 1.0  # points of held-out accuracy that new units must gain at least
GOOD_ENOUGH = 98.0  # percent that the ancestor's features reach, from which on nothing is trained
FEWEST_NEW = 40  # pictures a class, from which on new units are tried beside the ancestor's
BATCH = 32  # that LR is for
LR = 0.2  # chosen on training images of MNIST, FashionMNIST, CIFAR-10 and SVHN, 100 a class
LR_FROM_ANCESTOR = 0.03  # chosen on training images of SVHN and notMNIST, 80 a class
PRESENTED = 16_000  # images shown to learn a task, each many times; fewer where they are large
PRESENTED_FROM_ANCESTOR = 8_000
WIDE = 48  # pixels a side, from which on they are
EPOCHS = 3  # how often each is shown, where there are very many
MOST_EPOCHS = 150
PLENTY = 20_000  # pictures, from which on none is moved about


def plan(
    side: int, grey: bool, network: str | None, size: int | None,
    ancestor: Ancestor | Backbone | None,
) -> tuple[NetworkSettings, tuple[int, int, int]]:  # fmt: skip
    """Network and input shape of a new model, for pictures whose shorter side is usually `side`.

    Colours are kept unless `grey` is asked for: the next task may have some. With an ancestor, the
    tickets have its shape, and pictures the size that it was trained on, if that was one.
    """
    if size is not None and not 8 <= size <= LARGEST_SIDE:
        raise RivalsError(f"--size is {size}, but pictures have 8 to {LARGEST_SIDE} pixels a side.")
    if isinstance(ancestor, Backbone):
        chosen = size or ancestor.side
        return ancestor.network(RIVALS), (1 if grey else 3, chosen, chosen)
    sides: tuple[int, ...] = ANCESTORS_SIDES if ancestor else SIDES
    if ancestor and ancestor.side:
        sides = (ancestor.side,)
    chosen = size or fitting_side(side, sides)
    shape = (1 if grey else 3, chosen, chosen)
    if ancestor:
        if not looks_at(ancestor, chosen):
            least = next(side for side in count(1) if looks_at(ancestor, side))
            needs = f"at least {least}" if looks_at(ancestor, 2 * least) else f"exactly {least}"
            raise RivalsError(
                f"--size is {chosen}, but the ancestor '{ancestor.name}' needs {needs} pixels a "
                "side."
            )
        return ancestor.network(RIVALS), shape
    name = network or "conv-small"
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS)
    settings = NetworkSettings(architecture=name, widths=NETWORKS[name])
    return settings, shape


def looks_at(ancestor: Ancestor, side: int) -> bool:
    """Whether an ancestor has the weights for pictures of `side` × `side` pixels."""
    try:
        weights = check_network_size(ancestor.network(1), (ancestor.channels, side, side))
    except RivalsError:  # nothing would be left of the picture
        return False
    return all(
        ancestor.tensors[f"layer{number}.weight"].numel() == wanted
        for number, wanted in enumerate(weights)
    )


def preparation(channels: int, ancestor: Ancestor | Backbone | None = None) -> Preprocessing:
    """The same for every task of a model: bytes to −2 … 2, or as its ancestor knows them."""
    known = ancestor.preparation(channels) if ancestor else None
    return known or centred(channels)


def training(
    images: int, side: int, batch: int, epochs: int | None, augmentation: str | None,
    ancestor: bool, stem: bool = False,
) -> TWTASettings:  # fmt: skip
    """How `images` are learned: few ones often, many ones a few times.

    What starts from an ancestor starts near its end: fewer and smaller steps are enough, and one
    draw decides who wins: newcomers start as equals, so a competition has nothing to learn there,
    and its weaker gradients cost accuracy (docs/competition.md). The features of a stem are
    computed once, so that pictures are not moved about.
    """
    shown = (PRESENTED_FROM_ANCESTOR if ancestor else PRESENTED) * min(1.0, WIDE / side)
    wanted = max(EPOCHS, min(MOST_EPOCHS, round(shown / images)))
    actual = max(2, min(batch, images // 2))
    return TWTASettings(
        epochs=epochs or wanted,
        batch_size=actual,
        lr=(LR_FROM_ANCESTOR if ancestor else LR) * math.sqrt(actual / BATCH),
        augmentation=augmentation or ("none" if stem or images >= PLENTY else "crop"),
        competition=CompetitionSettings(share=0.0) if ancestor else CompetitionSettings(),
    )


def checks(steps: int) -> int:
    """Steps between two looks at the held-out pictures."""
    return max(10, math.ceil(steps / 20))
