"""Whether an ancestor of one's own helps: five classes are learned, then the five others.

    RIVALS_DATA=DIR python benchmarks/own_ancestor.py [--sets fashion-mnist notmnist] [--draws 3]

A model learns the first five classes of a data set from 400 pictures each. An ancestor is made of
it, and one of its ticket. New models learn few pictures of the other classes, from nothing, from
these ancestors and from `tiny`; 100 pictures a class of the test set are named.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from few import SETS, by_rivals, draw

import rivals
from rivals.streams.data.loading import load

KNOWN = 400  # pictures a class that the first model learns
SHOTS = (5, 20, 80)


def ancestors(place: Path) -> dict[str, str]:
    """What new models start from, by name; the source is the set `known`."""
    images, labels, *_ = draw("known", KNOWN, 0)
    model = rivals.Model(place / "model")
    model.learn((images, labels), "known")
    model.ticket("known").save(place / "ticket")
    made = {
        f"own, of a {kind}": str(rivals.make_ancestor(place / kind, place / f"of-{kind}").folder)
        for kind in ("model", "ticket")
    }
    return {"none": "none", **made, "tiny": "tiny"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="*", default=["fashion-mnist", "notmnist", "svhn"])
    parser.add_argument("--draws", type=int, default=3)
    wanted = parser.parse_args()
    for name in wanted.sets:
        classes = tuple(load(name).classes)
        SETS["known"], SETS["others"] = (name, classes[:5], ()), (name, classes[5:], SHOTS)
        with tempfile.TemporaryDirectory() as place:
            for ancestor, where in ancestors(Path(place)).items():
                for shots in SHOTS:
                    draws = [draw("others", shots, number) for number in range(wanted.draws)]
                    found = [by_rivals(where, data)[0] for data in draws]
                    print(
                        f"{name:14} {shots:>3} pictures  {ancestor:16} "
                        f"{statistics.mean(found):5.1f} ± {statistics.pstdev(found):.1f} %",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
