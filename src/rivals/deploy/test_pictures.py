"""Pictures of a task: some to calibrate with, others to compare and to measure with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.seeds import Seed
from rivals.streams.picture_data import PictureData, open_source
from rivals.streams.stream import StreamItem
from rivals.tickets.ticket import Ticket

MOST = 1000  # images to compare with
FEW = 200  # if fewer are held, others are added, so that 1 % is more than one image
RANDOM = 256  # images of noise
A_CLASS = 400  # most pictures that are read of one class


@dataclass(frozen=True)
class ComparisonPictures:
    """Raw images (n, channels, height, width) with labels and source."""

    held: Tensor  # not used for training or calibration
    labels: Tensor | None  # (n,) of the held images
    others: (
        Tensor | None
    )  # of the same task, validation before training images; None if there are none
    source: str  # where they come from, in words

    def compared(self) -> Tensor:
        """The held images; others, which are easier, are added only if there are too few."""
        held = self.held[:MOST]
        if self.others is None or len(held) >= FEW:
            return held
        return torch.cat([held, self.others[: FEW - len(held)]])


def of_stream_item(item: StreamItem) -> ComparisonPictures:
    """Test images to compare with; validation and then training images to calibrate with."""
    task = item.task
    test = item.test.subset(_order(len(item.test), "test"))
    validation, train = (
        each.images[_order(len(each), name)]
        for name, each in (("validation", task.validation), ("train", task.train))
    )
    others = torch.cat([validation, train])
    source = "test images of the run"
    if len(test) < FEW:
        source = "test, validation and training images of the run"
    return ComparisonPictures(test.images, test.labels, others, source)


def at_random(ticket: Ticket) -> ComparisonPictures:
    """Noise: it can compare outputs, but says nothing about accuracy."""
    white, generator = min(255, int(ticket.preprocessing.scale)), Seed(0).child("random").torch()
    shape = (RANDOM, *ticket.input_shape)
    images = torch.randint(0, white + 1, shape, generator=generator, dtype=torch.uint8)
    return ComparisonPictures(
        images, None, None, "random pictures, as no others are given (--images)"
    )


def of_data(data: PictureData, ticket: Ticket) -> ComparisonPictures:
    """Pictures of the ticket's classes: a folder, arrays or a dataset, as `Model.learn` takes."""
    if isinstance(data, str | os.PathLike):
        return of_folder(Path(data), ticket)
    source = open_source(data, "the pictures to compare with", None, fewest=1)
    source = source.read_as(ticket.sound, f"the ticket of '{ticket.task}'")
    for name in source.classes:
        if name not in ticket.classes:
            raise RivalsError(
                f"The class '{name}' of {source.place} is none of '{ticket.task}', which has "
                f"{', '.join(ticket.classes)}."
            )
    labelled = [
        (source.get(item), ticket.classes.index(name))
        for name, items in source.classes.items()
        for item in _some(items)
    ]
    return _in_halves(labelled, ticket, "the pictures that were given", has_labels=True)


def of_folder(folder: Path, ticket: Ticket) -> ComparisonPictures:
    """Pictures in one subfolder for each class, or without subfolders and labels.

    Every second picture is held; the others are to calibrate with.
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
    return _in_halves(labelled, ticket, f"pictures of {folder}", has_labels=bool(inside))


def _in_halves(
    labelled: Sequence[tuple[Any, int]], ticket: Ticket, source: str, has_labels: bool
) -> ComparisonPictures:
    """Every second picture is held; the others are to calibrate with."""
    scale = ticket.preprocessing.scale
    pixels = [
        to_pixels(each, ticket.input_shape, scale, sound=ticket.sound) for each, _ in labelled
    ]
    images, labels = torch.from_numpy(np.stack(pixels)), torch.tensor([n for _, n in labelled])
    order = _order(len(images), "folder")
    held, others = order[::2], order[1::2]
    given = labels[held] if has_labels else None
    return ComparisonPictures(images[held], given, images[others], source)


def _order(count: int, name: str) -> Tensor:
    """A fixed random order, so that the first images have all classes."""
    return torch.randperm(count, generator=Seed(0).child("pictures", name).torch())


def _some(files: Sequence[Any]) -> Sequence[Any]:
    return files[:: -(-len(files) // A_CLASS)] if files else files
