"""Accuracy of a device that learns in C: whole numbers beside floating point, and the package.

    python benchmarks/teach.py --out results/teach [--ancestor tiny] [--draws 5] [--only animals]

The draws of benchmarks/few.py: five classes, so many pictures of each, tested on official test
pictures. `tasks` are the ten tasks of CIFAR-100, learned one after the other; there the task is
given, and in `tasks-unknown` it is not. A device sees pictures of 48 × 48 pixels, brought to this
size as `rivals learn` does.

`float` and `int8` are the two kinds of features of `rivals export --to c --teachable`; the C has
the same arithmetic (tests/test_teachable.py compares every bit), so Python measures both. `package`
is the discriminant of the package from the same statistics, in 64 bits. One row for each draw goes
to teach.csv, so that the command goes on where it stopped; then the means are printed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from few import SETS, TASKS, Draw, draw
from torch import Tensor

from rivals.ancestors.ancestor import shipped
from rivals.ancestors.feature_network import FrozenNetwork, feature_network
from rivals.deploy.teachable.calibrated_body import FloatFeatures, calibrated_body
from rivals.deploy.teachable.integer_features import IntegerFeatures
from rivals.deploy.teachable.taught_state import TaughtState
from rivals.io.pictures import to_pixels
from rivals.naming.discriminant import ClassStatistics, covariance, head

SHAPE = (3, 48, 48)
FIELDS = ("set", "pictures", "draw", "ancestor", "features", "accuracy")
KINDS = ("package", "float", "int8")


class Learners:
    """The three kinds of features of one ancestor."""

    def __init__(self, ancestor: str) -> None:
        self.within = shipped(ancestor).within
        self.network: FrozenNetwork = feature_network(ancestor, SHAPE)
        body = calibrated_body(
            ancestor, self.network.network, self.within, SHAPE, self.network.preparation
        )
        self.white = {"float": FloatFeatures(body), "int8": IntegerFeatures(body)}

    def answers(
        self, kind: str, learned: Tensor, labels: list[str], tested: Tensor, groups: list[list[str]]
    ) -> Iterator[list[str]]:
        """The names of the tested pictures, among the classes of each group alone."""
        if kind == "package":
            yield from self._package(learned, labels, tested, groups)
            return
        features, state = self.white[kind], TaughtState(len(self.within))
        for row, label in zip(features(learned).numpy(), labels, strict=True):
            group = next(str(n) for n, each in enumerate(groups) if label in each)
            state.learn(row, group, label)
        rows = features(tested).numpy()
        for number in range(len(groups)):
            yield [state.answer(row, str(number))[0].name for row in rows]
        if len(groups) > 1:
            yield [state.answer(row)[0].name for row in rows]

    @torch.no_grad()
    def _package(
        self, learned: Tensor, labels: list[str], tested: Tensor, groups: list[list[str]]
    ) -> Iterator[list[str]]:
        seen, rows = (
            torch.cat([self.network.network(self.network.preparation(some))
                       for some in images.split(64)])
            for images in (learned, tested)
        )  # fmt: skip
        names = [name for group in groups for name in group]
        numbers = torch.tensor([names.index(label) for label in labels])
        means = ClassStatistics.of(seen, numbers, len(names)).means
        weight, bias = head(means, covariance([], self.within))
        scores = rows @ weight.T + bias
        asked = [*groups, names] if len(groups) > 1 else groups
        for group in asked:
            places = torch.tensor([names.index(name) for name in group])
            yield [group[number] for number in scores[:, places].argmax(1).tolist()]


def looked_at(images: Any) -> Tensor:
    """Pictures as the device sees them."""
    grey = images.shape[1] == 1
    parts = [each[0] if grey else each.transpose(1, 2, 0) for each in images]
    return torch.from_numpy(np.stack([to_pixels(each, SHAPE, 255.0) for each in parts]))


def measure(learners: Learners, kind: str, name: str, data: Draw) -> Iterator[tuple[str, float]]:
    """The set that a row is for, and accuracy in percent."""
    images, labels, tested, truth = data
    names = list(dict.fromkeys(labels))
    width = len(names) // TASKS if name == "tasks" else len(names)
    groups = [names[place : place + width] for place in range(0, len(names), width)]
    asked = learners.answers(kind, looked_at(images), labels, looked_at(tested), groups)
    found = list(asked)
    right = [
        found[number][place] == true
        for place, true in enumerate(truth)
        for number, group in enumerate(groups)
        if true in group
    ]
    yield name, 100 * float(np.mean(right))
    if len(groups) > 1:
        unknown = [one == true for one, true in zip(found[-1], truth, strict=True)]
        yield "tasks-unknown", 100 * float(np.mean(unknown))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/teach"))
    parser.add_argument("--ancestor", default="tiny")
    parser.add_argument("--only", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--draws", type=int, default=5)
    wanted = parser.parse_args()
    wanted.out.mkdir(parents=True, exist_ok=True)
    path = wanted.out / "teach.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    done = {(r["set"], r["pictures"], r["draw"], r["ancestor"], r["features"]) for r in rows}
    learners = Learners(wanted.ancestor)
    for name in wanted.only:
        for shots in SETS[name][2]:
            for number in range(wanted.draws):
                data = None
                for kind in KINDS:
                    key = (name, str(shots), str(number), wanted.ancestor, kind)
                    if key in done:
                        continue
                    data = data or draw(name, shots, number)
                    for what, accuracy in list(measure(learners, kind, name, data)):
                        values = (what, *key[1:], f"{accuracy:.2f}")
                        rows.append(dict(zip(FIELDS, values, strict=True)))
                        with path.open("a", newline="") as file:
                            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                            if file.tell() == 0:
                                writer.writeheader()
                            writer.writerow(rows[-1])
    for key in dict.fromkeys((r["set"], r["pictures"], r["ancestor"], r["features"]) for r in rows):
        same = [float(r["accuracy"]) for r in rows
                if (r["set"], r["pictures"], r["ancestor"], r["features"]) == key]  # fmt: skip
        spread = statistics.stdev(same) if len(same) > 1 else 0.0
        print(f"{key[0]:13} {key[1]:>3} pictures  {key[2]} {key[3]:8} "
              f"{statistics.mean(same):5.1f} ± {spread:.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
