"""Pictures of a task: those to calibrate with, and those to compare and to measure with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.seeds import Seed
from rivals.streams.stream import StreamItem
from rivals.tickets.ticket import Ticket

MOST = 1000  # images that are compared
FEW = 200  # fewer held ones are joined by others, so that one percent is more than one image
RANDOM = 256
A_CLASS = 400  # pictures that are read of one class, at most


@dataclass(frozen=True)
class ComparisonPictures:
    """Raw images (n, channels, height, width), and what is known of them."""

    held: Tensor  # not learned from and not calibrated with
    labels: Tensor | None  # (n,) of those held
    others: Tensor | None  # of the same task, those not learned from first; None: there are none
    whence: str  # in words

    def compared(self) -> Tensor:
        """Those held; what was learned from is easier, so it only makes up for too few of them."""
        held = self.held[:MOST]
        if self.others is None or len(held) >= FEW:
            return held
        return torch.cat([held, self.others[: FEW - len(held)]])


def of_lesson(lesson: StreamItem) -> ComparisonPictures:
    """Test images, and to calibrate with validation images first, then training images."""
    task = lesson.task
    test = lesson.test.subset(_order(len(lesson.test), "test"))
    validation, train = (
        each.images[_order(len(each), name)]
        for name, each in (("validation", task.validation), ("train", task.train))
    )
    others = torch.cat([validation, train])
    whence = "test images of the run"
    if len(test) < FEW:
        whence = "test, validation and training images of the run"
    return ComparisonPictures(test.images, test.labels, others, whence)


def at_random(ticket: Ticket) -> ComparisonPictures:
    """Noise: enough to compare numbers, not to say how good a ticket is."""
    white, generator = int(ticket.preprocessing.scale), Seed(0).child("random").torch()
    shape = (RANDOM, *ticket.input_shape)
    images = torch.randint(0, white + 1, shape, generator=generator, dtype=torch.uint8)
    return ComparisonPictures(
        images, None, None, "random pictures, for no others are at hand (--images)"
    )


def of_folder(folder: Path, ticket: Ticket) -> ComparisonPictures:
    """Pictures in subfolders named as classes, or without subfolders and labels.

    Every second one is held; the others are to calibrate with.
    """
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise RivalsError(
            f"--images {folder} cannot be read ({error.strerror}); name a folder of pictures."
        ) from error
    inside = [path for path in entries if path.is_dir()]
    for path in inside:
        if path.name not in ticket.classes:
            raise RivalsError(
                f"--images {folder} has a subfolder '{path.name}', but the classes of "
                f"'{ticket.task}' are {', '.join(ticket.classes)}."
            )
    labelled: list[tuple[Path, int]] = []
    for path in inside:
        files = _some(sorted(each for each in path.iterdir() if not each.name.startswith(".")))
        labelled += [(file, ticket.classes.index(path.name)) for file in files]
    if not inside:
        labelled = [(file, -1) for file in _some(entries)]
    if len(labelled) < 2:
        raise RivalsError(
            f"--images {folder} holds fewer than two pictures; "
            "put some into a subfolder for each class."
        )
    scale = ticket.preprocessing.scale
    pixels = [to_pixels(file, ticket.input_shape, scale) for file, _ in labelled]
    images, labels = torch.from_numpy(np.stack(pixels)), torch.tensor([n for _, n in labelled])
    order = _order(len(images), "folder")
    held, others = order[::2], order[1::2]
    return ComparisonPictures(
        images[held], labels[held] if inside else None, images[others], f"pictures of {folder}"
    )


def _order(count: int, name: str) -> Tensor:
    """Always the same one, so that a part of the images has all classes in it."""
    return torch.randperm(count, generator=Seed(0).child("pictures", name).torch())


def _some(files: Sequence[Path]) -> Sequence[Path]:
    return files[:: -(-len(files) // A_CLASS)] if files else files
