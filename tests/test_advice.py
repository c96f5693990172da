"""What `learn` says of itself: baselines, the pair mixed up most, what more pictures bring."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import rivals
from rivals.cli.learn_screen import LearnScreen
from rivals.learn.linear_head import FOLDS, Head, held_out_rows, held_out_scores
from rivals.learn.logistic_regression import (
    PENALTIES,
    fit_path,
    pixel_regression,
    small_pixels,
)
from rivals.model.advice import (
    CLOSED_FORM,
    NEAREST,
    NEW_UNITS,
    PIXELS,
    Advice,
    ConfusedPair,
    MorePictures,
    advise,
    expected_gain,
    learning_curve,
    most_confused,
)
from rivals.model.testing import wilson
from rivals.naming.discriminant import discriminant, nearest_class_mean
from rivals.naming.minimise import minimise
from rivals.seeds import Seed
from rivals.streams.stream import folds
from rivals.streams.task import Examples, Task, centred
from teaching import folder

PLAIN = {"bird": 0, "cat": 1, "dog": 2, "frog": 3}


def digits(count: int) -> tuple[Tensor, Tensor]:
    """Pictures (n, 1, 8, 8) of the bundled digits, bytes."""
    benchmark = rivals.benchmarks["digits"]
    stream = benchmark.build(benchmark.settings(), Seed(0))
    parts = [stream[number].task.train for number in range(5)]
    images = torch.cat([part.images for part in parts]) * 15
    labels = torch.cat([part.labels + 2 * n for n, part in enumerate(parts)])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:count]
    return images[order].to(torch.uint8), labels[order]


def clouds(classes: int, each: int, d: int, apart: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Normal rows around means that lie `apart` deviations from the origin."""
    generator = torch.Generator().manual_seed(seed)
    means = apart * F.normalize(torch.randn(classes, d, generator=torch.Generator().manual_seed(9)))
    labels = torch.arange(classes).repeat_interleave(each)
    return means[labels] + torch.randn(len(labels), d, generator=generator), labels


# Learners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [PENALTIES[0], PENALTIES[2], PENALTIES[-1]])
def test_logistic_regression_is_that_of_scikit_learn(penalty: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    images, labels = digits(300)
    rows, other = small_pixels(images[:200]), small_pixels(images[200:])
    centre, scale = rows.mean(0), rows.std(0, correction=0).clamp_min(1e-3)
    reference = linear_model.LogisticRegression(C=1 / penalty, max_iter=5000, tol=1e-8)
    reference.fit(((rows - centre) / scale).numpy(), labels[:200].numpy())
    ((weight, bias),) = fit_path(rows, labels[:200], [penalty])
    ours = torch.softmax(other @ weight.T + bias, 1)
    theirs = torch.tensor(reference.predict_proba(((other - centre) / scale).numpy()))
    assert float((ours - theirs).abs().max()) < 0.02
    assert float((ours - theirs).abs().mean()) < 0.001


def test_pixels_choose_how_much_they_are_trusted() -> None:
    """Digits want a weak penalty, pictures of noise the strongest."""
    images, labels = digits(400)
    weight, _ = pixel_regression(images, labels, Seed(0))
    (weakest, _) = fit_path(small_pixels(images), labels, PENALTIES)[-1]
    noise = torch.randint(0, 256, images.shape, generator=Seed(1).torch(), dtype=torch.uint8)
    of_noise, _ = pixel_regression(noise, labels, Seed(0))
    (strongest, _) = fit_path(small_pixels(noise), labels, PENALTIES)[0]
    assert float(weight.norm()) > 0.5 * float(weakest.norm())
    assert torch.allclose(of_noise, strongest, atol=1e-4)


def test_pixels_name_digits_and_are_the_same_each_time() -> None:
    images, labels = digits(500)
    weight, bias = pixel_regression(images[:400], labels[:400], Seed(0))
    assert weight.shape == (10, 64)
    right = (small_pixels(images[400:]) @ weight.T + bias).argmax(1) == labels[400:]
    assert float(right.float().mean()) > 0.85
    again = pixel_regression(images[:400], labels[:400], Seed(0))
    assert torch.equal(weight, again[0])
    assert torch.equal(bias, again[1])


def test_small_pixels_of_every_size() -> None:
    images = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    rows = small_pixels(images)
    assert rows[0, 0] == pytest.approx((0 + 1 + 16 + 17) / 4 / 255)
    assert small_pixels(torch.zeros(2, 3, 50, 50, dtype=torch.uint8)).shape == (2, 192)


def test_odd_pictures_do_no_harm() -> None:
    """One picture of a class, pixels that never change, all pictures alike."""
    images, labels = torch.zeros(3, 3, 32, 32, dtype=torch.uint8), torch.tensor([0, 1, 1])
    for each in (images, images.index_fill(0, torch.tensor([0]), 200)):
        weight, bias = pixel_regression(each, labels, Seed(0))
        assert bool(torch.isfinite(weight).all() and torch.isfinite(bias).all())
    assert int((small_pixels(images[1:]) @ weight.T + bias)[0].argmax()) == 1


@pytest.mark.parametrize("count", [500, 5000])
def test_pixels_take_half_a_second(count: int) -> None:
    images = torch.randint(0, 256, (count, 3, 48, 48), generator=Seed(0).torch()).to(torch.uint8)
    labels = torch.arange(count) % 10
    images[torch.arange(count), 0, labels * 4] = 255  # something to learn
    began = time.process_time()
    pixel_regression(images, labels, Seed(0))
    assert time.process_time() - began < 0.5 * 2  # twice that of an idle machine


def test_the_nearest_mean_is_the_nearest() -> None:
    rows, labels = clouds(4, 20, 5, apart=1.0)
    weight, bias = nearest_class_mean(rows, labels)
    means = torch.stack([rows[labels == number].mean(0) for number in range(4)])
    other, _ = clouds(4, 50, 5, apart=1.0, seed=1)
    nearest = torch.cdist(other, means).argmin(1)
    assert torch.equal((other @ weight.T + bias).argmax(1), nearest)


def test_what_is_tested_was_not_learned() -> None:
    rows, labels = torch.arange(30.0).unsqueeze(1), torch.arange(30) % 3
    seen: list[set[float]] = []

    def fit(some: Tensor, _: Tensor) -> Head:
        seen.append(set(some.flatten().tolist()))
        return torch.ones(3, 1), torch.zeros(3)

    splits = list(folds(labels, FOLDS, Seed(0)))
    scores = held_out_scores(rows, labels, fit, splits)
    order = held_out_rows(splits)
    assert sorted(order.tolist()) == list(range(30))
    assert torch.equal(scores[:, 0], order.float())  # each row has its own score
    for learned, (_, tested) in zip(seen, splits, strict=True):
        assert learned.isdisjoint(tested.tolist())
        assert len(learned) + len(tested) == 30


# What is mixed up --------------------------------------------------------------------------------


def confused(pairs: dict[tuple[str, str], int], right: int = 30) -> ConfusedPair | None:
    truth, predicted = [], []
    for (true, answer), count in {**{(n, n): right for n in PLAIN}, **pairs}.items():
        truth += [PLAIN[true]] * count
        predicted += [PLAIN[answer]] * count
    return most_confused(torch.tensor(truth), torch.tensor(predicted), tuple(PLAIN))


def test_a_pair_counts_in_both_directions() -> None:
    pairs = {("dog", "cat"): 4, ("cat", "dog"): 5, ("frog", "bird"): 6, ("bird", "dog"): 2}
    found = confused(pairs)
    assert found == ConfusedPair(("cat", "dog"), 9, 17)
    assert str(found) == "cat and dog are mixed up most: 9 of 17 mistakes."


@pytest.mark.parametrize(
    "pairs",
    [
        {},
        {("cat", "dog"): 2},
        {("cat", "dog"): 3, ("frog", "bird"): 2, ("bird", "cat"): 2, ("dog", "frog"): 2},
    ],
    ids=["none", "few", "even"],
)
def test_chance_is_no_pair(pairs: dict[tuple[str, str], int]) -> None:
    assert confused(pairs) is None


def test_two_classes_are_no_news_and_many_mistakes_no_trouble() -> None:
    truth = torch.tensor([0, 1] * 50)
    assert most_confused(truth, 1 - truth, ("a", "b")) is None
    many = confused({("cat", "dog"): 60_000, ("bird", "dog"): 40_000})
    assert many is not None
    assert many.mistakes == 100_000


# More pictures -----------------------------------------------------------------------------------


def curve(classes: int, each: int, d: int, apart: float) -> MorePictures:
    fit = partial(discriminant, within=torch.eye(d), prior=100.0)
    found = learning_curve(*clouds(classes, each, d, apart), fit, Seed(0))
    assert found is not None
    return found


def test_more_pictures_help_where_the_curve_rises() -> None:
    found = curve(4, 15, 60, apart=2.5)
    quarter, half, whole = found.accuracies
    assert quarter < half < whole
    assert found.verdict == "help"
    rows, labels = clouds(4, 30, 60, apart=2.5)
    fit = partial(discriminant, within=torch.eye(60), prior=100.0)
    other, truth = clouds(4, 500, 60, apart=2.5, seed=5)

    def accuracy(kept: Tensor) -> float:
        weight, bias = fit(rows[kept], labels[kept])
        return 100 * float(((other @ weight.T + bias).argmax(1) == truth).float().mean())

    first = torch.cat([torch.nonzero(labels == number).flatten()[:15] for number in range(4)])
    gain = accuracy(torch.arange(len(labels))) - accuracy(first)
    assert abs(found.gain - gain) < 3 * found.error


def test_more_pictures_help_little_where_it_is_flat() -> None:
    assert curve(3, 400, 2, apart=2.0).verdict == "little"  # as good as it gets
    easy = curve(3, 40, 4, apart=30.0)
    assert easy.accuracies[-1] == 100
    assert (easy.verdict, round(easy.gain)) == ("little", 0)


def test_pictures_that_cannot_be_halved_say_nothing() -> None:
    rows, labels = clouds(3, 2, 4, apart=2.0)
    assert learning_curve(rows, labels, nearest_class_mean, Seed(0)) is None
    rows, labels = clouds(3, 5, 4, apart=2.0)
    assert learning_curve(rows, labels, nearest_class_mean, Seed(0)) is not None


def test_an_uncertain_curve_counts_less() -> None:
    sure, unsure = expected_gain(6.0, 0.1, 20.0), expected_gain(6.0, 8.0, 20.0)
    assert sure[0] == pytest.approx(0.65 * 6, abs=0.1)
    assert unsure[0] == pytest.approx(0.12 * 20, abs=0.3)  # the usual share of the mistakes
    assert unsure[1] > 5 > 1.6 > sure[1]
    assert expected_gain(-5.0, 0.1, 20.0)[0] == 0


@pytest.mark.parametrize(
    ("gain", "error", "verdict", "sentence"),
    [
        (4.8, 1.4, "help", "Twice as many pictures would probably bring about 5 points more."),
        (1.2, 1.0, "little", "More pictures would help little: twice as many bring about 1 point."),
        (1.9, 1.0, "little", "twice as many bring about 2 points."),
        (0.2, 1.0, "little", "twice as many bring less than a point."),
        (2.5, 3.0, "unclear", "There are too few pictures to say whether more would help."),
        (1.0, 3.5, "unclear", "There are too few pictures to say whether more would help."),
    ],
)
def test_the_verdict_in_words(gain: float, error: float, verdict: str, sentence: str) -> None:
    found = MorePictures((1.0, 2.0, 3.0), gain, error)
    assert found.verdict == verdict
    assert str(found).endswith(sentence)


def test_the_search_finds_the_bottom_of_a_narrow_curved_valley() -> None:
    """Rosenbrock's function, whose slope leads astray; the bottom is at (1, 1)."""

    def valley(point: Tensor) -> tuple[float, Tensor]:
        x, y = point
        value = (1 - x) ** 2 + 100 * (y - x**2) ** 2
        across = 200 * (y - x**2)
        return float(value), torch.stack([2 * (x - 1) - 2 * x * across, across])

    start = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    found = minimise(valley, start, flat=1e-8, steps=60)
    assert torch.allclose(found, torch.ones(2, dtype=torch.float64), atol=1e-8)
    assert valley(minimise(valley, start, flat=1e-8, steps=5))[0] < valley(start)[0]
    assert torch.equal(minimise(valley, start, flat=1e9, steps=60), start)


def test_the_search_ends_where_only_rounding_is_left() -> None:
    calls = []

    def bowl(point: Tensor) -> tuple[float, Tensor]:
        calls.append(1)
        return 1e6 + float(point.square().sum()), 2 * point

    minimise(bowl, torch.full((3,), 0.7), flat=0.0, steps=1000)
    assert len(calls) < 10


# Together ----------------------------------------------------------------------------------------


def test_learners_are_compared_in_one_line() -> None:
    better = Advice(72.0, 50, True, CLOSED_FORM, {PIXELS: 41.0, NEAREST: 52.0})
    assert better.sentences() == {
        "learners": "Kept: linear discriminant. For comparison: nearest class mean 52.0 %, "
        "logistic regression on pixels 41.0 %."
    }
    worse = Advice(50.0, 50, False, NEW_UNITS, {PIXELS: 41.0, NEAREST: 52.0})
    assert worse.sentences()["learners"] == (
        "Kept: trained network, no better than nearest class mean 52.0 %; "
        "logistic regression on pixels 41.0 %."
    )
    kept = Advice(79.0, 50, False, PIXELS, {PIXELS: 79.0, NEW_UNITS: 74.0})
    assert kept.learners() == [("logistic regression on pixels", 79.0), ("trained network", 74.0)]
    assert Advice(79.0, 50, False, PIXELS, {PIXELS: 79.0}).sentences() == {}
    some = Advice(72.0, 2000, True, CLOSED_FORM, {PIXELS: 41.0, CLOSED_FORM: 70.0}, some=500)
    assert some.sentences()["learners"] == (
        "Kept: linear discriminant (70.0 % of 500 of the pictures). For comparison: logistic "
        "regression on pixels 41.0 %."
    )


def test_advice_is_json() -> None:
    pair, more = ConfusedPair(("cat", "dog"), 7, 14), MorePictures((60.0, 66.0, 72.0), 4.8, 1.4)
    found = Advice(72.0, 50, True, CLOSED_FORM, {PIXELS: 41.0}, pair, more).to_dict()
    assert json.loads(json.dumps(found)) == {
        "accuracy": 72.0,
        "interval": list(wilson(36, 50)),
        "tested": 50,
        "cross_validated": True,
        "kept": "closed form",
        "baselines": {"pixels": 41.0},
        "compared": 50,
        "learners": [["linear discriminant", 72.0], ["logistic regression on pixels", 41.0]],
        "confused": {"classes": ["cat", "dog"], "count": 7, "mistakes": 14},
        "more_pictures": {
            "accuracies": [60.0, 66.0, 72.0], "gain": 4.8, "error": 1.4, "verdict": "help",
        },
        "sentences": {
            "learners": "Kept: linear discriminant. For comparison: logistic regression on pixels "
            "41.0 %.",
            "confused": "cat and dog are mixed up most: 7 of 14 mistakes.",
            "more_pictures": "Twice as many pictures would probably bring about 5 points more.",
        },
    }  # fmt: skip
    none = Advice(72.0, 50, True, CLOSED_FORM).to_dict()
    assert (none["confused"], none["more_pictures"], none["sentences"]) == (None, None, {})


def test_learn_says_it(tmp_path: Path, accepted: Callable[..., str]) -> None:
    pictures = folder(tmp_path / "digits", (3, 5, 8, 9), 20)
    words = ("learn", pictures, "--model", tmp_path / "m", "--new", "0")
    printed = accepted(*words).splitlines()
    said = printed[next(n for n, line in enumerate(printed) if line.startswith("Accuracy")) :]
    assert " in cross-validation of 80 pictures." in said[0]
    assert said[1].startswith("Kept: ")
    assert "logistic regression on pixels" in said[1]
    assert any("ictures would" in line for line in said[2:4])
    assert sum(not line.startswith(("It took", "Next")) for line in said) <= 4

    events = accepted(*words, "--json", "--name", "same").splitlines()
    advice = json.loads(events[-1])["advice"]
    assert advice["kept"] in (CLOSED_FORM, NEAREST)
    assert advice["accuracy"] == json.loads(events[-1])["accuracy"]
    assert (advice["tested"], advice["cross_validated"]) == (80, True)
    assert advice["baselines"][PIXELS] > 60
    assert advice["baselines"][NEAREST] > 45

    learned = rivals.Model(tmp_path / "m").learn(pictures, "same", again=True)
    assert learned.advice is None


def test_of_many_pictures_learners_are_compared_on_the_same_some() -> None:
    images, labels = digits(900)
    none = Examples(images[:0], labels[:0])
    task = Task("digits", tuple("0123456789"), Examples(images, labels), none, centred(1, 15.0))
    tested = held_out_rows(list(folds(labels, FOLDS, Seed(0).child("folds")))[:6])
    predicted = (labels + 1) % 10  # the learner that was kept is right on these only
    predicted[tested] = labels[tested]
    found = advise(task, predicted, CLOSED_FORM, seed=Seed(0))
    assert 500 <= found.compared == len(tested) < found.tested == 900
    assert found.accuracy == pytest.approx(100 * len(tested) / 900)
    assert found.accuracy_compared == 100
    assert found.learners()[0] == ("linear discriminant", 100.0)
    assert f"100.0 % of {len(tested)} of the pictures" in found.sentences()["learners"]
    few = Task(task.name, task.classes, Examples(images[:300], labels[:300]), none, centred(1))
    all_of_them = advise(few, labels[:300], CLOSED_FORM, seed=Seed(0))
    assert (all_of_them.compared, list(all_of_them.baselines)) == (300, [PIXELS])


def test_a_trained_task_is_compared_on_what_was_held_out(tmp_path: Path) -> None:
    pictures = folder(tmp_path / "digits", (3, 5, 8), 20)
    learned = rivals.Model(tmp_path / "m").learn(pictures, ancestor="none", epochs=2)
    assert learned.advice is not None
    assert (learned.advice.kept, learned.advice.cross_validated) == (NEW_UNITS, False)
    assert learned.advice.tested == learned.facts.held == 12
    assert learned.advice.accuracy == pytest.approx(learned.accuracy)
    assert list(learned.advice.baselines) == [PIXELS]  # there are no features
    assert learned.advice.more_pictures is None
    again = rivals.Model(tmp_path / "n").learn(pictures, ancestor="none", epochs=2)
    assert again.advice == learned.advice


def test_a_screen_does_without_advice(capsys: pytest.CaptureFixture[str]) -> None:
    event: dict[str, Any] = {
        "event": "done", "kept": True, "before": None, "accuracy": 75.0, "held": 80,
        "stopped": "planned", "repeated": 0, "seconds": 1.0, "bytes": 9, "weights": 9,
        "room": {"layer": 1.0}, "unsigned": False,
    }  # fmt: skip
    for advice in ({}, {"advice": None}):
        LearnScreen(Path("m"))({**event, **advice})
        assert "Accuracy 75.0 % ± 9.3 on 80 held-out pictures." in capsys.readouterr().out
