"""Should the new units of a model compete, or does one draw decide? Both, from an ancestor and from nothing.

    RIVALS_DATA=DIR python benchmarks/newcomers.py --out results/few/newcomers.csv

Five classes with 80 pictures each and 200 to test, all from the training images of SVHN and notMNIST; four draws of
classes and pictures. New units are asked for, so no other way of learning is compared. Means are printed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import rivals
from rivals.learn.twta import CompetitionSettings
from rivals.model import defaults
from rivals.streams.data.loading import load

SETS, DRAWS, LEARNED, TESTED = ("svhn", "notmnist"), 4, 80, 200
LEARNERS: dict[str, dict[str, Any]] = {
    "none": {"ancestor": "none"},
    "small": {"ancestor": "small", "new": 1.0},
}


def accuracy(name: str, draw: int, learner: str, share: float) -> float:
    data, chance = load(name).train, np.random.default_rng([7, draw])
    images, labels = np.asarray(data.images), np.asarray(data.labels)
    parts: list[list[Any]] = [[], [], [], []]
    for label in chance.choice(10, 5, replace=False):
        at = chance.permutation(np.flatnonzero(labels == label))[: LEARNED + TESTED]
        for place, number in enumerate(at):
            half = 0 if place < LEARNED else 2
            parts[half].append(images[number])
            parts[half + 1].append(str(label))
    usual = defaults.training

    def training(*args: Any, **options: Any) -> Any:
        return usual(*args, **options).replace(competition=CompetitionSettings(share=share))

    defaults.training = training
    try:
        with tempfile.TemporaryDirectory() as folder:
            model = rivals.Model(Path(folder) / "model")
            model.learn((np.stack(parts[0]), parts[1]), "task", seed=draw, **LEARNERS[learner])
            return model.test((np.stack(parts[2]), parts[3])).accuracy
    finally:
        defaults.training = usual


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    rows: list[dict[str, Any]] = []
    for name in SETS:
        for learner in LEARNERS:
            for share in (0.0, 0.2):
                for draw in range(DRAWS):
                    found = accuracy(name, draw, learner, share)
                    rows.append(
                        {
                            "set": name,
                            "learner": learner,
                            "share": share,
                            "draw": draw,
                            "accuracy": round(found, 2),
                        }
                    )
                mean = statistics.mean(row["accuracy"] for row in rows[-DRAWS:])
                print(f"{name:9} {learner:6} share {share:.1f}: {mean:.1f} %", flush=True)
                with out.open("w", newline="") as file:
                    writer = csv.DictWriter(file, rows[0])
                    writer.writeheader()
                    writer.writerows(rows)


if __name__ == "__main__":
    main()
