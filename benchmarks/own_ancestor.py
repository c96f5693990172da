"""Whether an ancestor of one's own helps: five classes are learned, then the five others.

    RIVALS_DATA=DIR python benchmarks/own_ancestor.py [--sets svhn notmnist] [--draws 3]

A model learns the first five classes of a data set from 400 pictures each: from nothing, and with
new units beside `small`. An ancestor is made of each, and one of the first one's ticket. New models
learn few pictures of the other classes, from nothing, from these ancestors and from `small`; 100
pictures a class of the test set are named.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from few import SETS, Draw, draw

import rivals
from rivals.streams.data.loading import load

KNOWN = 400  # pictures a class that the first model learns
SHOTS = (5, 20, 80)


def ancestors(place: Path) -> dict[str, str]:
    """What new models start from, by name; the source is the set `known`."""
    images, labels, *_ = draw("known", KNOWN, 0)
    for name in ("none", "small"):
        rivals.Model(place / name).learn((images, labels), "known", ancestor=name, new=1)
    rivals.Model(place / "none").ticket("known").save(place / "ticket")
    sources = {
        "own": "none", "own, of its ticket": "ticket", "own, that began as small": "small",
    }  # fmt: skip
    made = {
        words: str(rivals.make_ancestor(place / name, place / f"of-{name}").folder)
        for words, name in sources.items()
    }
    return {"none": "none", **made, "small": "small"}


def accuracy(ancestor: str, data: Draw) -> float:
    images, labels, tested, truth = data
    with tempfile.TemporaryDirectory() as place:
        model = rivals.Model(Path(place) / "model")
        model.learn((images, labels), "task", ancestor=ancestor)
        return model.test((tested, truth)).accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="*", default=["svhn", "notmnist"])
    parser.add_argument("--draws", type=int, default=3)
    wanted = parser.parse_args()
    for name in wanted.sets:
        classes = tuple(load(name).classes)
        SETS["known"], SETS["others"] = (name, classes[:5], ()), (name, classes[5:], SHOTS)
        with tempfile.TemporaryDirectory() as place:
            for ancestor, where in ancestors(Path(place)).items():
                for shots in SHOTS:
                    draws = [draw("others", shots, number) for number in range(wanted.draws)]
                    found = [accuracy(where, data) for data in draws]
                    print(
                        f"{name:14} {shots:>3} pictures  {ancestor:24} "
                        f"{statistics.mean(found):5.1f} ± {statistics.pstdev(found):.1f} %",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
