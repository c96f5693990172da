"""Does `learn` foresee what more pictures bring? Its learning curve against the truth.

    RIVALS_DATA=DIR python benchmarks/more_pictures.py --out results/more-pictures

Tasks of five animals of CIFAR-10, 10 to 80 pictures a class, features of the shipped ancestors.
From the pictures of a draw `learning_curve` predicts the gain of twice as many. The real gain is
that of the closed form of `learn` on 1,000 test pictures a class when as many others are added, the
mean of three additions. Beside it: is the accuracy on the test pictures inside the interval that
cross-validation gives, and are the two classes that are mixed up most the same? `--set cifar-100`
and the like take random classes; the constants of `learning_curve` were fitted on those, not on the
animals.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ancestor_sizes import IMAGES, network
from few import ANIMALS
from torch import Tensor

from rivals.ancestors.ancestor import shipped
from rivals.model import defaults
from rivals.model.advice import learning_curve, most_confused
from rivals.model.data_source import open_source
from rivals.model.frozen_features import ClosedForm, FrozenFeatures
from rivals.model.testing import wilson
from rivals.naming.discriminant import discriminant
from rivals.nn.rival_network import ANCESTOR
from rivals.seeds import Seed
from rivals.streams import picture_source
from rivals.streams.data.loading import load

POOL = 1000  # pictures a class to draw from, and to test with
MOST_CLASSES = 30
ADDITIONS = 3  # other pictures that are added, each time as many as there are
SIDE = defaults.ANCESTORS_SIDE
Labelled = tuple[Tensor, Tensor]  # pictures or features, and labels
FIELDS = (
    "set", "ancestor", "classes", "pictures", "draw", "quarter", "half", "all", "predicted",
    "error", "verdict", "real", "cross_validated", "accuracy", "inside", "confused",
    "confused_in_test",
)  # fmt: skip


def pictures(data_set: str, names: tuple[str, ...] | None, test: bool) -> Labelled:
    """Some of each class, as a model with an ancestor sees them, and their labels."""
    data = load(data_set)
    split, classes = data.test if test else data.train, list(data.classes)
    chance, labels = np.random.default_rng(0), np.asarray(split.labels)
    wanted = chance.permutation(len(classes))[:MOST_CLASSES].tolist()
    wanted = [classes.index(name) for name in names] if names else wanted
    members = [chance.permutation(np.nonzero(labels == each)[0])[:POOL] for each in wanted]
    chosen = np.concatenate(members)
    given = np.repeat([f"{n:04}" for n in range(len(members))], [len(some) for some in members])
    source = open_source((np.asarray(split.images[chosen]), given.tolist()), "task", None)
    found = picture_source.read(source, (3, SIDE, SIDE))
    return found.images, found.labels


@torch.no_grad()
def features(ancestor: str, images: Tensor) -> Tensor:
    body, prepare = network(shipped(ancestor)), defaults.preparation(3)
    parts = [body.flow(prepare(some), ANCESTOR).values for some in images.split(IMAGES)]
    return torch.cat(parts)


class GivenFeatures(FrozenFeatures):
    """The closed form of `learn`, for features that are there already."""

    def __init__(self, within: Tensor, rows: Tensor, labels: Tensor, seed: Seed) -> None:
        self.within, self.seed, self.classes = within, seed, int(labels.max()) + 1
        self.train, self.validation = rows, rows[:0]
        self.train_labels, self.validation_labels = labels, labels[:0]


class Pool:
    """Features to draw tasks from."""

    def __init__(self, ancestor: str, learned: Labelled, tested: Labelled) -> None:
        self.within = shipped(ancestor).within
        self.learned, self.tested = (
            (features(ancestor, images), labels) for images, labels in (learned, tested)
        )

    def row(self, ways: int, shots: int, seed: Seed) -> dict[str, object]:
        """One draw: what is predicted, and what is so."""
        (rows, labels), (others, truth) = self.learned, self.tested
        generator = seed.torch()
        classes = torch.randperm(int(labels.max()) + 1, generator=generator)[:ways]
        members = [torch.nonzero(labels == each).flatten() for each in classes]
        members = [some[torch.randperm(len(some), generator=generator)] for some in members]
        own = torch.cat([some[:shots] for some in members])
        targets = torch.arange(ways).repeat_interleave(shots)
        number = torch.full((int(labels.max()) + 1,), -1)
        number[classes] = torch.arange(ways)
        there = number[truth] >= 0
        test = GivenFeatures(self.within, others[there], number[truth][there], seed)

        def learn(chosen: Tensor, labels: Tensor) -> ClosedForm:
            return GivenFeatures(self.within, rows[chosen], labels, seed).closed_form()

        closed = learn(own, targets)
        accuracy, later = test.accuracy_of(closed.kept), []
        for _ in range(ADDITIONS):
            added = [
                some[shots:][torch.randperm(len(some) - shots, generator=generator)[:shots]]
                for some in members
            ]
            more = learn(torch.cat([own, *added]), targets.repeat(2))
            later.append(test.accuracy_of(more.kept))
        fit = partial(discriminant, within=self.within)
        more_pictures = learning_curve(rows[own], targets, fit, seed.child("curve"))
        assert more_pictures is not None
        low, high = wilson(int((closed.predicted == targets).sum()), len(targets))
        names = [str(each) for each in classes.tolist()]
        weight, bias = fit(rows[own], targets)
        answers = (test.rows @ weight.T + bias).argmax(1)
        pair = most_confused(targets, closed.predicted, names)
        in_test = most_confused(test.labels, answers, names)
        found = dict(zip(("quarter", "half", "all"), more_pictures.accuracies, strict=True))
        found |= {"predicted": more_pictures.gain, "error": more_pictures.error}
        found |= {"real": statistics.mean(later) - accuracy, "accuracy": accuracy}
        found["cross_validated"] = closed.accuracy
        return {
            **{name: round(value, 2) for name, value in found.items()},
            "verdict": more_pictures.verdict,
            "inside": int(low <= accuracy <= high),
            "confused": " ".join(pair.classes) if pair else "",
            "confused_in_test": " ".join(in_test.classes) if in_test else "",
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/more-pictures"))
    parser.add_argument("--set", default="animals", help="animals, or a data set")
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--pictures", type=int, nargs="*", default=[10, 20, 40, 80])
    parser.add_argument("--ancestors", nargs="*", default=["tiny", "small"])
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    wanted.out.mkdir(parents=True, exist_ok=True)
    animals = wanted.set == "animals"
    data, names = ("cifar-10", ANIMALS) if animals else (wanted.set, None)
    learned, tested = (pictures(data, names, test) for test in (False, True))
    rows: list[dict[str, object]] = []
    for ancestor in wanted.ancestors:
        pool = Pool(ancestor, learned, tested)
        for shots in wanted.pictures:
            same = [
                pool.row(wanted.ways, shots, Seed(draw).child(wanted.set, wanted.ways, shots))
                for draw in range(wanted.draws)
            ]
            summarise(f"{wanted.set}, {ancestor}, {shots} pictures a class", same)
            head = {"set": wanted.set, "ancestor": ancestor, "classes": wanted.ways}
            rows += [
                {**head, "pictures": shots, "draw": draw, **row} for draw, row in enumerate(same)
            ]
    with (wanted.out / f"{wanted.set}-{wanted.ways}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    for verdict in ("help", "unclear", "little"):
        real = [float(str(row["real"])) for row in rows if row["verdict"] == verdict]
        if real:
            over = sum(each >= 1 for each in real)
            print(
                f"{verdict:8} {len(real):3} times; the real gain was {statistics.mean(real):.1f} "
                f"± {statistics.pstdev(real):.1f} points, at least 1 point {over} times"
            )


def summarise(what: str, rows: list[dict[str, object]]) -> None:
    def values(name: str) -> list[float]:
        return [float(str(row[name])) for row in rows]

    off = [p - r for p, r in zip(values("predicted"), values("real"), strict=True)]
    usual = statistics.mean(each * each for each in off) ** 0.5
    within = sum(abs(each) <= 2 * e for each, e in zip(off, values("error"), strict=True))
    named = [row for row in rows if row["confused"] and row["confused_in_test"]]
    same = sum(row["confused"] == row["confused_in_test"] for row in named)
    print(
        f"{what}: predicted {statistics.mean(values('predicted')):.1f}, real "
        f"{statistics.mean(values('real')):.1f} points, off by {usual:.1f} (root mean square), "
        f"within two errors {within} of {len(rows)}; "
        f"{dict(Counter(str(row['verdict']) for row in rows))}; accuracy "
        f"{statistics.mean(values('cross_validated')):.1f} in cross-validation, "
        f"{statistics.mean(values('accuracy')):.1f} in test, in the interval "
        f"{int(sum(values('inside')))} of {len(rows)}; pair named {len(named)} times, right {same}",
        flush=True,
    )


if __name__ == "__main__":
    main()
