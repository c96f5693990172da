"""Accuracy with few pictures: what `rivals learn` reaches, beside plain baselines.

    python benchmarks/few.py --out results/few [--only animals] [--draws 5] [--ancestors none tiny]

Five animals of CIFAR-10 with 10, 20 and 80 pictures a class, and 80 pictures a class of
Fashion-MNIST, SVHN, notMNIST and 14 of Omniglot's characters. Each draw takes other classes and
other pictures; the test pictures are from the official test set, 100 a class. One row for each draw
goes to few.csv, so that the command goes on where it stopped; then the means are printed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import rivals
from rivals.streams.data.loading import load

ANIMALS = ("bird", "cat", "deer", "dog", "frog")
SETS = {  # name: (data set, classes, pictures a class)
    "animals": ("cifar-10", ANIMALS, (10, 20, 80)),
    "fashion": ("fashion-mnist", 5, (80,)),
    "svhn": ("svhn", 5, (80,)),
    "notmnist": ("notmnist", 5, (80,)),
}
TESTED = 100  # pictures a class
FIELDS = ("set", "pictures", "draw", "learner", "accuracy", "seconds", "bytes")
Draw = tuple[NDArray[np.uint8], list[str], NDArray[np.uint8], list[str]]


def draw(name: str, shots: int, number: int) -> Draw:
    """Pictures to learn from and pictures to test with, and their labels."""
    data_set, classes, _ = SETS[name]
    data, chance = load(data_set), np.random.default_rng([number, shots])
    names = list(data.classes)
    if isinstance(classes, int):
        chosen = sorted(chance.permutation(len(names))[:classes].tolist())
    else:
        chosen = [names.index(each) for each in classes]
    parts: list[tuple[list[NDArray[np.uint8]], list[str]]] = []
    for split, count in ((data.train, shots), (data.test, TESTED)):
        images, labels, found = split.images, np.asarray(split.labels), ([], [])
        for each in chosen:
            members = np.sort(chance.permutation(np.nonzero(labels == each)[0])[:count])
            found[0].append(np.asarray(images[members]))
            found[1].extend([names[each]] * len(members))
        parts.append(found)
    (learned, labels_learned), (tested, labels_tested) = parts
    return np.concatenate(learned), labels_learned, np.concatenate(tested), labels_tested


def by_rivals(ancestor: str, data: Draw) -> tuple[float, int]:
    """Accuracy of `Model.learn`, and the bytes of the task."""
    images, labels, tested, truth = data
    with tempfile.TemporaryDirectory() as folder:
        model = rivals.Model(Path(folder) / "model")
        learned = model.learn((images, labels), "task", ancestor=ancestor)
        return model.test((tested, truth)).accuracy, learned.facts.bytes


def by_pixels(data: Draw) -> tuple[float, int]:
    """Logistic regression on pixels."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    images, labels, tested, truth = data
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    model.fit(images.reshape(len(images), -1) / 255, labels)
    return 100 * model.score(tested.reshape(len(tested), -1) / 255, truth), 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/few"))
    parser.add_argument("--only", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--ancestors", nargs="*", default=["none", "tiny"])
    wanted = parser.parse_args()
    wanted.out.mkdir(parents=True, exist_ok=True)
    path = wanted.out / "few.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    done = {(r["set"], r["pictures"], r["draw"], r["learner"]) for r in rows}
    for name in wanted.only:
        for shots in SETS[name][2]:
            for number in range(wanted.draws):
                for learner in [*wanted.ancestors, "pixels"]:
                    key = (name, str(shots), str(number), learner)
                    if key in done:
                        continue
                    data, began = draw(name, shots, number), time.monotonic()
                    accuracy, size = (
                        by_pixels(data) if learner == "pixels" else by_rivals(learner, data)
                    )
                    seconds = time.monotonic() - began
                    row = dict(
                        zip(FIELDS, (*key, f"{accuracy:.2f}", f"{seconds:.1f}", size), strict=True)
                    )
                    rows.append(row)
                    with path.open("a", newline="") as file:
                        writer = csv.DictWriter(file, FIELDS)
                        if file.tell() == 0:
                            writer.writeheader()
                        writer.writerow(row)
    for name, shots, learner in dict.fromkeys(
        (r["set"], r["pictures"], r["learner"]) for r in rows
    ):
        same = [
            r for r in rows if (r["set"], r["pictures"], r["learner"]) == (name, shots, learner)
        ]
        values = [float(r["accuracy"]) for r in same]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        seconds = statistics.median(float(r["seconds"]) for r in same)
        print(
            f"{name:10} {shots:>3} pictures  {learner:8} {statistics.mean(values):5.1f} "
            f"± {spread:.1f} %  {seconds:5.1f} s  {same[0]['bytes']} bytes"
        )


if __name__ == "__main__":
    main()
