"""Same answers, or none: an artefact is compared with the ticket that it was made from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rivals.deploy.export_format import Format
from rivals.deploy.test_pictures import ComparisonPictures
from rivals.edge.artefact import Artefact, softmax
from rivals.errors import RivalsError
from rivals.tickets.ticket import Ticket


@dataclass(frozen=True)
class Parity:
    """How an artefact compares with what it was made from."""

    images: int  # that were compared
    source: str  # where the images come from
    difference: float  # the largest of a probability
    agreement: float  # share of images with the same class
    held: int = 0  # of the images, those with labels that were not learned from
    before: float | None = None  # accuracy on them in percent, of the ticket
    after: float | None = None  # and of the artefact

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(ticket: Ticket, artefact: Artefact, pictures: ComparisonPictures) -> Parity:
    """Run both on the pictures."""
    images = pictures.compared()
    wanted = np.concatenate([ticket(some).numpy() for some in torch.split(images, 64)])
    found = softmax(artefact.scores(images.numpy()))
    labels = None if pictures.labels is None else pictures.labels.numpy()
    return judge(wanted, found, labels, pictures.source)


def judge(
    wanted: NDArray[np.float32],
    found: NDArray[np.float32],
    labels: NDArray[np.int64] | None,
    source: str,
) -> Parity:
    """Two tables of probabilities (n, classes); the labels are those of the first images."""
    if wanted.shape != found.shape:
        raise RivalsError(
            f"The artefact gives {found.shape[1:]} numbers for an image, and the ticket "
            f"{wanted.shape[1:]}; this is a mistake of the export."
        )
    right, other = wanted.argmax(1), found.argmax(1)
    difference = float(np.abs(wanted - found).max()) if np.isfinite(found).all() else float("inf")
    agreement = float((right == other).mean())
    if labels is None:
        return Parity(len(wanted), source, difference, agreement)
    labels = labels[: len(wanted)]
    held = len(labels)
    before, after = (100 * float((each[:held] == labels).mean()) for each in (right, other))
    return Parity(len(wanted), source, difference, agreement, held, before, after)


def check(parity: Parity, format_: Format, name: str) -> None:
    """Refuse what is beyond the tolerance of its format."""
    found = ""
    if parity.agreement < format_.agreement:
        found = (
            f"{100 * parity.agreement:.2f} % of {parity.images} images get the same class, "
            f"at least {100 * format_.agreement:g} % were expected"
        )
    elif not parity.difference <= format_.tolerance:
        found = (
            f"a probability differs by {parity.difference:.1e}, "
            f"at most {format_.tolerance:.0e} was expected"
        )
    elif parity.before is not None and parity.after is not None:
        allowed = max(format_.points, 100 / parity.held)  # one image of few is more than a point
        if parity.before - parity.after > allowed + 1e-9:
            found = (
                f"accuracy falls from {parity.before:.1f} to {parity.after:.1f} %, "
                f"at most {format_.points:g} point was expected"
            )
    if found:
        raise RivalsError(
            f"The artefact does not equal its ticket in '{name}': {found} ({parity.source}); "
            "nothing was kept, use another format."
        )
