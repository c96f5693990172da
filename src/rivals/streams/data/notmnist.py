"""notMNIST (small): the letters A to J, 28×28 grey PNG in a tar.gz or a folder.

The release has no split. `train.txt` and `test.txt` beside the archive may define one (one file
name per line). Without them one sixth of each letter is the test set, drawn with a fixed seed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rivals.errors import RivalsError
from rivals.io.reading import read_bytes
from rivals.streams.data.archives import open_members
from rivals.streams.data.decoded import Decoded, Split
from rivals.streams.data.official_pictures import decode

LETTERS = tuple("ABCDEFGHIJ")
SEED = 2011  # the year of the release
LIST = 16 * 2**20  # bytes of a list of names
LARGEST = 64 * 2**20  # bytes of all pictures, which are held in memory
EMPTY = {  # the two empty files of the release
    "A/RGVtb2NyYXRpY2FCb2xkT2xkc3R5bGUgQm9sZC50dGY=.png",
    "F/Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png",
}


def _listed(path: Path, held: Mapping[str, bytes]) -> list[str]:
    """The names in a list, without their first folder."""
    try:
        text = read_bytes(Path(os.path.realpath(path)), "list", LIST).decode()
        lines = text.split("\n")
    except (RivalsError, UnicodeError) as error:
        raise RivalsError(
            f"{path} is not a readable list of file names ({type(error).__name__}); "
            "repair it or remove it."
        ) from None
    names = [line.strip().partition("/")[2] for line in lines if line.strip()]
    for name in names:
        if name not in held:
            raise RivalsError(
                f"{path} names '{name[:80]}', which is not in the archive; "
                "repair the list or remove it."
            )
    return names


def _drawn(held: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    generator = np.random.default_rng(SEED)
    train: list[str] = []
    test: list[str] = []
    for letter in LETTERS:
        names = sorted(name for name in held if name[0] == letter)
        chosen = set(generator.permutation(len(names))[: round(len(names) / 6)].tolist())
        train += [name for index, name in enumerate(names) if index not in chosen]
        test += [name for index, name in enumerate(names) if index in chosen]
    return train, test


def read(files: Mapping[str, Path], size: int) -> Decoded:
    """Both splits; the archive is small enough to be read into memory."""
    path = files["archive"]
    held: dict[str, bytes] = {}
    room = LARGEST
    with open_members(path) as members:
        for name, data in members.each():
            short = name.partition("/")[2]
            if short.endswith(".png") and short not in EMPTY:
                held[short] = data
                room -= len(data)
            if room < 0:
                raise RivalsError(
                    f"{path} holds pictures of more than {LARGEST:,} bytes, but the official ones "
                    "have 8 MB; run `rivals data get notmnist` for the official file."
                )
    strange = next((name for name in held if name[:2] not in {f"{a}/" for a in LETTERS}), None)
    if not held or strange is not None:
        found = f"a picture '{strange[:60]}'" if strange else "no picture"
        raise RivalsError(
            f"{path} holds {found}, but folders A to J of PNG were expected; "
            "run `rivals data get notmnist` for the official file."
        )
    lists = [files.get("train-list"), files.get("test-list")]
    if lists[0] is not None and lists[1] is not None:
        train, test = _listed(lists[0], held), _listed(lists[1], held)
        if both := set(train) & set(test):
            raise RivalsError(
                f"{lists[0].name} and {lists[1].name} both name '{min(both)[:80]}', but an image "
                "is for training or for testing; repair the lists."
            )
    else:
        train, test = _drawn(held)

    def split(names: list[str]) -> Split:
        labels = np.array([LETTERS.index(name[0]) for name in names], np.int64)
        chunks = (
            decode(held[name], f"{path}:{name}", "PNG", 28, (1, 28, 28))[None] for name in names
        )
        return Split(labels, (1, 28, 28), chunks)

    return Decoded(LETTERS, split(train), split(test))
