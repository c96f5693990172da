"""Omniglot: 1,623 characters, 20 drawings each, grey and scaled to 32×32.

Characters are sorted by alphabet and number, since the order of files differs between file systems;
those of `background` come before those of `evaluation`. The number of each drawing is kept, so that
a split can keep all rotations of one drawing on one side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rivals.errors import RivalsError
from rivals.streams.data.archives import open_members
from rivals.streams.data.decoded import Decoded, Images, Split
from rivals.streams.data.official_pictures import decode

SIDE = 105
PATTERN = re.compile(
    r"[^/]+/(?P<alphabet>[^/]+)/character(?P<number>\d+)/\d+_(?P<drawing>\d\d)\.png"
)
CHUNK = 1_000


def _names(path: Path) -> list[tuple[str, str, int]]:
    """(character, member, drawing) of every picture, sorted."""
    found = []
    with open_members(path) as members:
        for name in members.names():
            if (match := PATTERN.fullmatch(name)) is not None:
                character = f"{match['alphabet']}-{match['number']}"
                found.append((character, name, int(match["drawing"]) - 1))
    if not found:
        raise RivalsError(
            f"{path} holds no picture named alphabet/characterNN/NNNN_NN.png; "
            "run `rivals data get omniglot` for the official files."
        )
    return sorted(found)


def _split(path: Path, found: list[tuple[str, str, int]], first: int, side: int) -> Split:
    numbers: dict[str, int] = {}
    for character, _, _ in found:
        numbers.setdefault(character, first + len(numbers))

    def chunks() -> Iterator[Images]:
        with open_members(path) as members:
            pictures = (
                decode(data, f"{path}:{name}", "PNG", SIDE, (1, side, side))
                for name, data in members.each([name for _, name, _ in found])
            )
            for start in range(0, len(found), CHUNK):
                count = min(CHUNK, len(found) - start)
                yield np.stack([next(pictures) for _ in range(count)])

    labels = np.array([numbers[character] for character, _, _ in found], np.int64)
    drawings = np.array([drawing for _, _, drawing in found], np.int64)
    return Split(labels, (1, side, side), chunks(), {"drawings": drawings})


def read(files: Mapping[str, Path], size: int) -> Decoded:
    """`background` is the training split and `evaluation` the test split."""
    side = size or 32
    background, evaluation = _names(files["background"]), _names(files["evaluation"])
    classes = (
        *sorted({character for character, _, _ in background}),
        *sorted({character for character, _, _ in evaluation}),
    )
    first = len({character for character, _, _ in background})
    return Decoded(
        classes,
        _split(files["background"], background, 0, side),
        _split(files["evaluation"], evaluation, first, side),
    )
