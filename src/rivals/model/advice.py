"""What a person should know after learning: how good, against what, what is mixed up, what helps.

    advice = advise(task, predicted, CLOSED_FORM, features=features, fit=fit, seed=seed)
    advice.to_dict()   # in `Learned.to_dict()` and in the event `done`

All of it is measured on pictures that were not learned from when they were tested, and takes about
a second. Nothing here changes a model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from rivals.learn import linear_head
from rivals.learn.linear_head import Fit, Split, held_out_rows, held_out_scores
from rivals.learn.logistic_regression import best_penalty, fit_path, small_pixels
from rivals.model.testing import wilson
from rivals.naming.discriminant import Head, nearest_class_mean
from rivals.seeds import Seed
from rivals.streams.stream import folds, stratified
from rivals.streams.task import Task

CLOSED_FORM, NEW_UNITS, PIXELS, NEAREST = "closed form", "new units", "pixels", "nearest mean"
EDGES = "edges"
LEARNERS = {  # in words
    CLOSED_FORM: "linear discriminant",
    NEW_UNITS: "trained network",
    EDGES: "linear discriminant on edges",
    PIXELS: "logistic regression on pixels",
    NEAREST: "nearest class mean",
}
MOST_TESTED = 500  # pictures in cross-validation, about: all of it should take a second
SHARES = (0.25, 0.5, 1.0)  # of the pictures, on the learning curve
FOLDS = 5  # in which each of them is tested
DRAWS, ROWS = 6, 1500  # draws of these shares; fewer where rows times draws exceeded ROWS
# Fitted to tasks of CIFAR-100, Fashion-MNIST and SVHN (benchmarks/more_pictures.py):
LASTS = 0.65  # share of the mean gain of the last two doublings that the next one brings
USUAL = 0.12  # share of the mistakes that a doubling usually removes,
USUAL_ERROR = 1.5  # give or take so many points
MODEL_ERROR = 1.5  # points that the prediction is wrong by, however many pictures there are
WORTH = 2.0  # points: a doubling that brings less helps little
SURE = 0.05  # probability that a pair is mixed up so often by chance


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes that are taken for each other, in both directions together."""

    classes: tuple[str, str]
    count: int
    mistakes: int  # of all classes

    def __str__(self) -> str:
        one, other = self.classes
        return f"{one} and {other} are mixed up most: {self.count} of {self.mistakes} mistakes."


@dataclass(frozen=True)
class MorePictures:
    """What twice as many pictures of every class would probably bring."""

    accuracies: tuple[float, ...]  # percent, learned from a quarter, half and all of the pictures
    gain: float  # points
    error: float  # its standard error

    @property
    def verdict(self) -> str:
        """`help`, `little` or `unclear`."""
        if self.gain >= WORTH:
            return "help" if self.gain > self.error else "unclear"
        return "little" if self.gain + self.error < 2 * WORTH else "unclear"

    def __str__(self) -> str:
        points = round(self.gain)
        if self.verdict == "help":
            return f"Twice as many pictures would probably bring about {points} points more."
        if self.verdict == "little":
            bring = (
                "less than a point" if points < 1 else f"about {points} point{'s'[: points > 1]}"
            )
            return f"More pictures would help little: twice as many bring {bring}."
        return "There are too few pictures to say whether more would help."


@dataclass(frozen=True)
class Advice:
    """What a person should know after learning.

    As a dictionary, in JSON and in the event `done`; a screen must do without what is null:

        {"accuracy": 72.0, "interval": [58.3, 82.5], "tested": 50, "cross_validated": true,
         "kept": "closed form",                             # a key of LEARNERS
         "baselines": {"pixels": 41.0, "nearest mean": 52.0},  # percent
         "compared": 50,                                    # pictures that gave these percents
         "learners": [["linear discriminant", 72.0], ["nearest class mean", 52.0], …],  # in words
         "confused": {"classes": ["cat", "dog"], "count": 7, "mistakes": 14} | null,
         "more_pictures": {"accuracies": [60.1, 66.4, 72.0], "gain": 4.8, "error": 1.4,
                           "verdict": "help" | "little" | "unclear"} | null,
         "sentences": {"learners": "…", "confused": "…", "more_pictures": "…"}}  # those that are

    Of very many pictures in cross-validation, learners are compared on some: then `compared` is
    less than `tested`, and `baselines` has the learner that was kept, too, on these pictures.
    """

    accuracy: float  # percent, of the learner that was kept
    tested: int  # pictures
    cross_validated: bool  # False: they were held out from all learning
    kept: str  # a key of LEARNERS
    baselines: Mapping[str, float] = field(default_factory=dict)
    confused: ConfusedPair | None = None
    more_pictures: MorePictures | None = None
    some: int | None = None  # pictures that learners are compared on, if not all

    @property
    def compared(self) -> int:
        """Pictures on which learners are compared."""
        return self.tested if self.some is None else self.some

    @property
    def accuracy_compared(self) -> float:
        """Percent of these pictures, of the learner that was kept."""
        return self.accuracy if self.some is None else self.baselines[self.kept]

    @property
    def interval(self) -> tuple[float, float]:
        """95 % (Wilson); that of cross-validation is slightly too narrow, since heads are alike."""
        return wilson(round(self.accuracy * self.tested / 100), self.tested)

    def sentences(self) -> dict[str, str]:
        """At most one short line on each subject."""
        found = {}
        if len(self.learners()) > 1:
            found["learners"] = self._comparison()
        if self.confused:
            found["confused"] = str(self.confused)
        if self.more_pictures:
            found["more_pictures"] = str(self.more_pictures)
        return found

    def learners(self) -> list[tuple[str, float]]:
        """Learners in words with their accuracies on the same pictures: the one that was kept, then
        the best others."""
        others = [(each, name) for name, each in self.baselines.items() if name != self.kept]
        ranked = [(self.accuracy_compared, self.kept), *sorted(others, reverse=True)]
        return [(LEARNERS.get(name, name), each) for each, name in ranked]

    def _comparison(self) -> str:
        """What was kept, and the others; whether one of them is as good."""
        (kept, accuracy), *others = self.learners()
        listed = [f"{name} {each:.1f} %" for name, each in others]
        some = ""
        if self.some is not None:
            kept, some = f"{kept} ({accuracy:.1f} %", f" of {self.some} of the pictures)"
        if others[0][1] < accuracy:
            return f"Kept: {kept}{some}. For comparison: {', '.join(listed)}."
        return "; ".join([f"Kept: {kept}{some}, no better than {listed[0]}", *listed[1:]]) + "."

    def to_dict(self) -> dict[str, Any]:
        more = self.more_pictures
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "tested": self.tested,
            "cross_validated": self.cross_validated,
            "kept": self.kept,
            "baselines": dict(self.baselines),
            "compared": self.compared,
            "learners": [list(each) for each in self.learners()],
            "confused": asdict(self.confused) if self.confused else None,
            "more_pictures": {**asdict(more), "verdict": more.verdict} if more else None,
            "sentences": self.sentences(),
        }


def advise(
    task: Task, predicted: Tensor, kept: str, *, features: Tensor | None = None,
    fit: Fit | None = None, fit_rows: Tensor | None = None, seed: Seed,
) -> Advice:  # fmt: skip
    """Measure all that `Advice` says.

    Args:
        task: Its training pictures and those held out.
        predicted: The answers of the learner that was kept, for the pictures held out; or for all,
            the training pictures first, each by a learner from others (cross-validation). The
            baselines are tested in the same way.
        kept: Its name, a key of LEARNERS.
        features: (n, d), those of the ancestor for all pictures in this order, if there is one.
        fit: A learner on these features, for the learning curve: `discriminant` with the ancestor's
            covariance, whatever was kept, since it gains from more pictures as `learn` does.
        fit_rows: (n, d), what `fit` reads, if not these features.
    """
    parts = (task.train, task.validation)
    labels = torch.cat([each.labels for each in parts])
    count, held = len(labels), len(predicted)
    splits = [(torch.arange(count - held), torch.arange(count - held, count))]
    if held == count:
        splits = list(folds(labels, linear_head.FOLDS, seed.child("folds")))
        splits = _some(splits, count)
    rows_tested = held_out_rows(splits)
    tested = labels[rows_tested]
    pixels = torch.cat([small_pixels(each.images) for each in parts])
    penalty = best_penalty(pixels, labels, seed.child("pixels"))  # once: to the baseline's favour

    def regression(rows: Tensor, truth: Tensor) -> Head:
        return fit_path(rows, truth, [penalty])[0]

    learners: dict[str, tuple[Fit, Tensor]] = {PIXELS: (regression, pixels)}
    if features is not None:
        learners[NEAREST] = (nearest_class_mean, features)
    baselines = {
        name: _percent(held_out_scores(rows, labels, learner, splits).argmax(1) == tested)
        for name, (learner, rows) in learners.items()
    }
    some = None
    if len(tested) < held:
        some = len(tested)
        baselines[kept] = _percent(predicted[rows_tested] == tested)
    more = None
    if features is not None and fit is not None:
        rows = features if fit_rows is None else fit_rows
        more = learning_curve(rows, labels, fit, seed.child("curve"))
    truth = labels[count - held :]
    return Advice(
        accuracy=_percent(predicted == truth),
        tested=held,
        cross_validated=held == count,
        kept=kept,
        baselines=baselines,
        confused=most_confused(truth, predicted, task.classes),
        more_pictures=more,
        some=some,
    )


def most_confused(truth: Tensor, predicted: Tensor, classes: Sequence[str]) -> ConfusedPair | None:
    """The two classes that are mixed up most; None where chance may explain it, or of two classes.

    >>> import torch
    >>> truth = torch.tensor([0] * 20 + [1] * 20 + [2] * 20)
    >>> predicted = torch.tensor([0] * 14 + [1] * 6 + [1] * 16 + [0] * 3 + [2] * 20 + [0])
    >>> print(most_confused(truth, predicted, ("cat", "dog", "frog")))
    cat and dog are mixed up most: 9 of 10 mistakes.
    """
    wrong = [
        (min(pair), max(pair))
        for pair in zip(truth.tolist(), predicted.tolist(), strict=True)
        if pair[0] != pair[1]
    ]
    pairs = math.comb(len(classes), 2)
    if not wrong or pairs < 2:
        return None
    (one, other), count = max(sorted(Counter(wrong).items()), key=lambda item: item[1])
    if pairs * _at_least(count, len(wrong), 1 / pairs) > SURE:
        return None
    return ConfusedPair((classes[one], classes[other]), count, len(wrong))


def learning_curve(
    rows: Tensor, labels: Tensor, fit: Fit, seed: Seed, draws: int | None = None
) -> MorePictures | None:
    """What twice as many pictures would bring, from learning with a quarter and half of them.

    Every picture is tested in cross-validation, with heads from a quarter, half and all of the
    other folds, drawn several times. The mean gain of these two doublings, made smaller, predicts
    the next. How uncertain it is follows from how much it differs from picture to picture; the
    more uncertain, the more the usual gain counts, a share of the mistakes. None where a class has
    too few pictures to learn from half of them.
    """
    draws = draws or max(1, min(DRAWS, ROWS // len(labels)))
    right, times = torch.zeros(len(SHARES), len(labels)), torch.zeros(len(labels))
    learned = [0] * len(SHARES)
    for draw in range(draws):
        splits = list(folds(labels, FOLDS, seed.child("folds", draw)))
        splits = _some(splits, len(labels))
        tested = held_out_rows(splits)
        times[tested] += 1
        for number, share in enumerate(SHARES):
            some = [
                (kept[stratified(labels[kept], 1 - share, seed.child("some", draw, fold))[0]], held)
                for fold, (kept, held) in enumerate(splits)
            ]
            scores = held_out_scores(rows, labels, fit, some)
            right[number, tested] += (scores.argmax(1) == labels[tested]).float()
            learned[number] += sum(len(kept) for kept, _ in some)
    doublings = math.log2(learned[-1] / learned[0])  # two, but for very few pictures
    if doublings < 1:
        return None
    right = 100 * right[:, times > 0] / times[times > 0]  # percent of the times, of each picture
    gains = (right[-1] - right[0]) / doublings
    # Where no picture differs, one could have.
    luck = max(float(gains.std()) / math.sqrt(len(gains)), 100 / doublings / len(gains))
    accuracies = tuple(right.mean(1).tolist())
    return MorePictures(accuracies, *expected_gain(float(gains.mean()), luck, 100 - accuracies[-1]))


def expected_gain(slope: float, luck: float, wrong: float) -> tuple[float, float]:
    """Points that a doubling brings, and their standard error.

    Args:
        slope: The mean gain of the last two doublings, in points.
        luck: Its standard error.
        wrong: Percent of the pictures that are wrong.

    >>> expected_gain(slope=4.0, luck=0.0, wrong=30)  # measured well: a part of the last gains
    (2.6, 1.5)
    """
    trust = USUAL_ERROR**2 / (USUAL_ERROR**2 + (LASTS * luck) ** 2)
    gain = trust * LASTS * slope + (1 - trust) * USUAL * wrong
    return max(0.0, gain), math.hypot(LASTS * luck, MODEL_ERROR)


def _at_least(count: int, trials: int, share: float) -> float:
    """The probability of `count` or more of `trials`, each with the probability `share`."""
    return math.fsum(
        math.exp(
            math.lgamma(trials + 1) - math.lgamma(number + 1) - math.lgamma(trials - number + 1)
            + number * math.log(share) + (trials - number) * math.log1p(-share)
        )
        for number in range(count, trials + 1)
    )  # fmt: skip


def _some(splits: list[Split], count: int) -> list[Split]:
    """Of very many pictures it is enough to test some."""
    return splits[: math.ceil(len(splits) * MOST_TESTED / count)]


def _percent(right: Tensor) -> float:
    return 100 * float(right.float().mean())
