"""Tiny-ImageNet-200: 64×64 JPEG in a zip or a folder. Its `val` folder is the test set.

Images are decoded a few hundred at a time, so that the 1.2 GB are never in memory at once. A few
percent of the images are grey; they become RGB.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rivals.errors import RivalsError
from rivals.streams.data.archives import Members, open_members
from rivals.streams.data.decoded import Decoded, Images, Split
from rivals.streams.data.official_pictures import decode

SIDE = 64
CHUNK = 500
TRAIN = re.compile(r"train/(?P<wnid>n\d{8})/images/n\d{8}_(?P<number>\d+)\.JPEG")


def _text(members: Members, name: str) -> str:
    return b"".join(data for _, data in members.each([name])).decode("utf-8", "replace")


def _class_names(wnids: list[str], words: str) -> tuple[str, ...]:
    """The first English word of each class; its WordNet id if there is none or it is not unique."""
    lines = (line.partition("\t") for line in words.splitlines())
    known = {wnid: phrase.partition(",")[0].strip() for wnid, _, phrase in lines}
    chosen = [known.get(wnid) or wnid for wnid in wnids]
    seen = Counter(chosen)
    return tuple(
        name if seen[name] == 1 else wnid for name, wnid in zip(chosen, wnids, strict=True)
    )


def _split(path: Path, found: list[tuple[int, int, str]], side: int) -> Split:
    """`found` has (class, number, member); images are sorted in this order."""
    found.sort()

    def chunks() -> Iterator[Images]:
        with open_members(path) as members:
            pictures = (
                decode(data, f"{path}:{name}", "JPEG", SIDE, (3, side, side))
                for name, data in members.each([name for _, _, name in found])
            )
            for start in range(0, len(found), CHUNK):
                count = min(CHUNK, len(found) - start)
                yield np.stack([next(pictures) for _ in range(count)])

    labels = np.array([label for label, _, _ in found], np.int64)
    return Split(labels, (3, side, side), chunks())


def read(files: Mapping[str, Path], size: int) -> Decoded:
    """Classes in the order of wnids.txt; images by class, then by number."""
    path, side = files["archive"], size or SIDE
    if side not in (32, SIDE):
        raise RivalsError(f"The image size is {side}, but Tiny-ImageNet is read at 64 or 32.")
    with open_members(path) as members:
        names = members.names()
        top = path.name if path.is_dir() else "tiny-imagenet-200"
        there = set(names)
        for needed in (f"{top}/wnids.txt", f"{top}/val/val_annotations.txt"):
            if needed not in there:
                raise RivalsError(
                    f"{path} has no {needed}, which was expected in it; "
                    "run `rivals data get tiny-imagenet` for the official file."
                )
        wnids = _text(members, f"{top}/wnids.txt").split()
        words = _text(members, f"{top}/words.txt") if f"{top}/words.txt" in there else ""
        annotations = _text(members, f"{top}/val/val_annotations.txt")
    number = {wnid: index for index, wnid in enumerate(wnids)}
    train = []
    for name in names:
        match = TRAIN.fullmatch(name.removeprefix(f"{top}/"))
        if match is not None and match["wnid"] in number:
            train.append((number[match["wnid"]], int(match["number"]), name))
    test = []
    for line in annotations.splitlines():
        file, _, rest = line.partition("\t")
        wnid, name = rest.partition("\t")[0], f"{top}/val/images/{file}"
        if wnid not in number or name not in there:
            raise RivalsError(
                f"{path} annotates '{file[:40]}' as '{wnid[:20]}', but has no such picture or "
                "class; run `rivals data get tiny-imagenet` for the official file."
            )
        test.append((number[wnid], int(re.sub(r"\D", "", file) or 0), name))
    return Decoded(_class_names(wnids, words), _split(path, train, side), _split(path, test, side))
