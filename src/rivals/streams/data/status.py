"""The status of a data set on disk: absent, complete, subset or broken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rivals.errors import RivalsError
from rivals.streams.data import cache
from rivals.streams.data.catalogue import DataSet
from rivals.streams.data.decoded import subset_sentence
from rivals.streams.data.find import Located, search
from rivals.streams.data.loading import decode, fingerprint, key, sums


@dataclass(frozen=True)
class Status:
    """The status of one data set."""

    dataset: DataSet
    state: str  # absent, complete, subset or broken
    root: Path | None = None
    note: str = ""  # the subset sentence, or what is broken
    official: bool = False  # every file has its official MD5
    train: int = 0
    test: int = 0
    fingerprint: str = ""


def _official(located: Located, found: dict[str, str]) -> bool:
    """Whether each source is the released file, by MD5 or, where there is none, by size."""
    for source in located.dataset.sources:
        path = located.files[source.role]
        if path != located.root / source.path:
            return False
        if source.md5 != found[source.role] if source.md5 else path.stat().st_size != source.size:
            return False
    return True


def survey(dataset: DataSet, thorough: bool = False) -> Status:
    """The status by the number of images; if `thorough`, every byte and image is checked."""
    located = None
    try:
        located = search(dataset)
        if located is None:
            return Status(dataset, "absent")
        found = sums(located, again=thorough)
        mark = fingerprint(dataset.name, found)
        place = cache.place(dataset.name, key(mark, 0))
        if thorough:
            if cache.read(place, thorough=True) is None:
                # the entry is damaged, so it is decoded again
                cache.discard(place)
            counts = cache.fetch(dataset.title, place, lambda: decode(located)).counts
        else:
            held = cache.read(place)
            counts = held.counts if held is not None else decode(located).counts()
    except RivalsError as error:
        return Status(dataset, "broken", located.root if located else None, str(error))
    note = subset_sentence(dataset, counts)
    return Status(
        dataset,
        "subset" if note else "complete",
        located.root,
        note,
        _official(located, found),
        sum(counts["train"]),
        sum(counts["test"]),
        mark,
    )
