"""Naming tasks by shared features: what is kept of a task, the joint head, and what it promises."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.typing import NDArray

import rivals
from rivals.ancestors.shipped_file import SHIPPED, shipped_background
from rivals.edge import EdgeModel, load
from rivals.naming.class_sums import ClassSums, log_softmax
from rivals.naming.confidence import (
    SPREAD,
    USUAL,
    best_temperature,
    calibration_error,
    joint_temperature,
    spread_softmax,
)
from rivals.naming.feature_space import FeatureSpace, shipped_space
from rivals.naming.joint_head import JointHead
from rivals.naming.shared_features import SharedFeatures
from rivals.naming.task_statistics import TaskStatistics
from rivals.tickets.parallel import TicketOutput

WIDTH, TASKS, CLASSES = 12, 3, 4
Numbers = NDArray[np.float64]


def space(rooted: bool = True, background: bool = True) -> FeatureSpace:
    within = np.diag(np.linspace(0.02, 0.08, WIDTH))
    if not background:
        return FeatureSpace(within, rooted)
    return FeatureSpace(within, rooted, np.full(WIDTH, 1.2), within + 0.15 * np.eye(WIDTH))


def pictures(task: int, count: int, seed: int = 0) -> tuple[Numbers, NDArray[np.int64]]:
    """Features, the roots of which are normal around class means."""
    means = np.random.default_rng([task]).normal(1.2, 0.35, (CLASSES, WIDTH))
    chance, labels = np.random.default_rng([task, seed, 1]), np.arange(count) % CLASSES
    rows = means[labels] + chance.normal(0, np.sqrt(np.linspace(0.02, 0.08, WIDTH)), (count, WIDTH))
    return np.square(rows.clip(min=0)).astype(np.float32), labels


def statistics(where: FeatureSpace, count: int = 80) -> list[TaskStatistics]:
    found = [TaskStatistics.of(*pictures(task, count), CLASSES, where) for task in range(TASKS)]
    return [TaskStatistics.from_stored(each.stored(where), where) for each in found]


SPACES: dict[str, Callable[[], FeatureSpace]] = {
    "rooted": space,
    "no background": lambda: space(False, False),
    "one variance": lambda: FeatureSpace(np.array([0.3])),
}


@pytest.mark.parametrize("name", SPACES)
def test_torch_and_numpy_name_the_same(name: str) -> None:
    where = SPACES[name]()
    kept = statistics(where)
    made, rule = JointHead.of(kept, where), SharedFeatures(where)
    stored = [{k: torch.from_numpy(a) for k, a in each.stored(where).items()} for each in kept]
    namer = rule.namer(stored, lambda images: [])
    features = np.concatenate([pictures(task, 20, 5)[0] for task in range(TASKS)])
    scores = np.random.default_rng(0).normal(size=(TASKS, len(features), CLASSES))
    rows = torch.from_numpy(features)
    outputs = [TicketOutput(rows, torch.from_numpy(each).float()) for each in scores]
    outputs.append(TicketOutput(rows, rows[:, :0]))
    task, label, confidence, joint = namer.among_all(rows, outputs)
    own = np.concatenate([torch.softmax(each.scores, 1).numpy() for each in outputs[:-1]], 1)
    found = made.probabilities(features, own)
    assert joint is not None
    assert np.abs(found - joint.numpy()).max() < 1e-5
    assert np.allclose(found.sum(1), 1, atol=1e-5)
    best = found.argmax(1)
    assert (made.task[best] == task.numpy()).all()
    assert (made.label[best] == label.numpy()).all()
    assert np.allclose(found.max(1), confidence.numpy(), atol=1e-5)
    familiar = made.familiarity(features, made.task[best])
    assert np.abs(familiar - namer.familiarity(outputs, task).numpy()).max() < 1e-4


def test_tasks_of_different_sizes_are_filled_up() -> None:
    where = space()
    kept = statistics(where)
    small = ClassSums(kept[1].sums.means[:2], kept[1].sums.counts[:2], None)
    kept[1] = TaskStatistics(small, kept[1].levels, kept[1].usual, kept[1].temperature)
    made = JointHead.of(kept, where)
    assert made.members.tolist() == [[0, 1, 2, 3], [4, 5, 10, 10], [6, 7, 8, 9]]
    namer = SharedFeatures(where).namer(
        [{k: torch.from_numpy(a) for k, a in each.stored(where).items()} for each in kept],
        lambda images: [],
    )
    features = torch.from_numpy(pictures(1, 8, 3)[0])
    outputs = [TicketOutput(features, torch.zeros(8, n)) for n in (4, 2, 4, 0)]
    joint = namer.belief(features, outputs)[1]
    own = np.repeat([0.25, 0.5, 0.25], [4, 2, 4])[None].repeat(8, 0)
    assert np.abs(joint.numpy() - made.probabilities(features.numpy(), own)).max() < 1e-5
    which = torch.ones(8, dtype=torch.long)
    near = namer.familiarity(outputs, which).numpy()
    assert np.abs(near - made.familiarity(features.numpy(), which.numpy())).max() < 1e-4


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_the_promised_share_of_known_pictures_is_refused(share: float) -> None:
    """Of pictures that nothing was learned from, within three deviations of the binomial."""
    where = space()
    made, refused, count = JointHead.of(statistics(where, 400), where), list[bool](), 800
    for task in range(TASKS):
        features, _ = pictures(task, count, 7)
        refused += (made.familiarity(features, np.full(count, task)) < share).tolist()
    apart = 3 * np.sqrt(share * (1 - share) * (1 / len(refused) + 1 / (400 * TASKS)))
    assert abs(np.mean(refused) - share) < apart


def test_strangers_of_a_kind_and_of_no_kind_are_refused() -> None:
    """Of a kind: where the background is. Of none: far from that, too."""
    where = space()
    made, chance = JointHead.of(statistics(where), where), np.random.default_rng(3)
    for spread in (0.4, 2.0):
        roots = chance.normal(1.2, spread, (200, WIDTH)).clip(min=0)
        strange = np.square(roots).astype(np.float32)
        which = made.task[made.probabilities(strange, np.full((200, 12), 0.25)).argmax(1)]
        assert np.mean(made.familiarity(strange, which) < 0.05) > 0.7


def test_less_familiar_than_all_is_below_every_share() -> None:
    where = space()
    made = JointHead.of(statistics(where), where)
    far = np.full((1, WIDTH), 400.0, np.float32)
    assert made.familiarity(far, np.zeros(1, int))[0] < 0


@pytest.mark.parametrize("name", SPACES)
def test_one_picture_more_is_as_if_it_had_been_there(name: str) -> None:
    where = SPACES[name]()
    features, labels = pictures(0, 81)
    whole = TaskStatistics.of(features, labels, CLASSES, where)
    some = TaskStatistics.of(features[:-1], labels[:-1], CLASSES, where)
    more = some.with_picture(features[-1], int(labels[-1]), where)
    assert np.allclose(more.sums.means, whole.sums.means)
    assert (more.sums.counts == whole.sums.counts).all()
    if whole.sums.scatter is not None:
        assert np.allclose(more.sums.scatter, whole.sums.scatter)
    new = some.with_picture(features[-1], CLASSES, where)
    assert np.allclose(new.sums.means[-1], where.rows(features[-1]))
    assert new.sums.counts.tolist()[-1] == 1


def test_joined_statistics_know_how_many_pictures_they_are_of() -> None:
    where = space()
    one, other = (TaskStatistics.of(*pictures(0, n, n), CLASSES, where) for n in (40, 120))
    both = one.join(other)
    assert both.pictures == 160
    assert np.allclose(both.levels, 0.25 * one.levels + 0.75 * other.levels, atol=1e-4)
    assert min(one.temperature, other.temperature) <= both.temperature
    assert both.temperature <= max(one.temperature, other.temperature)


def test_the_only_picture_of_a_class_is_not_left_out() -> None:
    features, labels = pictures(0, 9)
    found = TaskStatistics.of(features, np.append(labels[:-1] % 3, 3), 4, space())
    assert np.isfinite(found.levels).all()
    assert found.temperature > 0
    alone = TaskStatistics.of(features[:4], labels[:4], 4, space())
    assert alone.temperature == USUAL


def test_confidence_is_calibrated_where_pictures_are_easy_or_hard() -> None:
    """There the best single temperature is too sure of some and too modest of others."""
    chance, count = np.random.default_rng(0), 20_000
    scores = chance.normal(size=(count, 5)) * 3
    by = np.where(chance.random(count) < 0.5, SPREAD, 1 / SPREAD)[:, None]
    labels = (by * scores + chance.gumbel(size=scores.shape)).argmax(1)
    right = scores.argmax(1) == labels
    single = best_temperature(scores, labels) * scores
    one = calibration_error(np.exp(log_softmax(single)).max(1), right)
    two = calibration_error(spread_softmax(scores).max(1), right)
    assert two < 1.5 < one


def test_tasks_of_few_pictures_say_little_of_the_joint_temperature() -> None:
    assert joint_temperature(np.array([2.0]), np.array([1.0])) == pytest.approx(USUAL, rel=0.1)
    assert joint_temperature(np.array([0.4]), np.array([3000.0])) == pytest.approx(0.4, rel=0.02)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_backgrounds_are_small_and_sound(name: str) -> None:
    assert len(shipped_background(name)) < 150_000
    where = shipped_space(name)
    assert where.rooted
    none = ClassSums(np.zeros((2, len(where.within))), np.ones(2), None)
    assert np.linalg.eigvalsh(where.precision(none)).min() > 0


@pytest.mark.parametrize("what", ["less", "shape", "not finite", "indefinite"])
def test_damaged_backgrounds_are_refused(what: str) -> None:
    kept = dict(safetensors.numpy.load(shipped_background("tiny")))
    if what == "less":
        del kept["mean"]
    elif what == "shape":
        kept["within"] = kept["within"][1:]
    elif what == "not finite":
        kept["covariance"] = np.where(np.arange(len(kept["covariance"])), np.inf, 1.0)
    else:
        kept["covariance"] = -kept["covariance"]
    with pytest.raises(ValueError, match=r"^(holds|has) "):
        FeatureSpace.of_background(kept)


# A model ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> rivals.Model:
    """Three tasks of two classes, in closed form."""
    found = rivals.Model(tmp_path_factory.mktemp("named") / "model")
    for task in range(TASKS):
        found.learn(coloured(task, 40), f"task {task}", ancestor=None if task else "tiny", new=0)
    return found


def coloured(task: int, count: int, seed: int = 0) -> tuple[NDArray[np.uint8], list[str]]:
    """Noise of a brightness that says the task, and of a colour that says the class."""
    chance, labels = np.random.default_rng([task, seed]), [f"{task}-{n % 2}" for n in range(count)]
    images = chance.integers(0, 60 + 50 * task, (count, 32, 32, 3), dtype=np.uint8)
    for place, image in enumerate(images):
        image[..., place % 2] += 40
    return images, labels


def test_answers_rank_the_classes_of_all_tasks(model: rivals.Model) -> None:
    answer = model.predict(coloured(1, 1, 9)[0][0])
    assert len(answer.choices) == 2 * TASKS
    assert sum(choice.confidence for choice in answer.choices) == pytest.approx(1, abs=1e-4)
    assert answer.task == "task 1"
    given = model.predict(coloured(1, 1, 9)[0][0], task="task 1")
    assert {choice.task for choice in given.choices} == {"task 1"}


def test_an_export_and_a_device_name_and_refuse_the_same(
    model: rivals.Model, tmp_path: Path
) -> None:
    model.export(None, tmp_path / "whole.onnx", all_tasks=True)
    shape = model.opened().description.input_shape
    chance = np.random.default_rng(4)
    images = np.concatenate([
        np.stack([rivals.edge.to_pixels(each, shape) for each in coloured(1, 12, 8)[0]]),
        chance.integers(0, 256, (6, *shape), dtype=np.uint8),
        np.full((2, *shape), 90, np.uint8),
    ])  # fmt: skip
    wanted = model.answers(images, reject=0.1)
    assert [each.rejected for each in wanted[-2:]] == [True, True]
    for other in (load(tmp_path / "whole.onnx"), EdgeModel(model.path)):
        found = other.answers(images, reject=0.1)
        for one, two in zip(found, wanted, strict=True):
            assert (one.task, one.label, one.rejected) == (two.task, two.label, two.rejected)
            assert one.confidence == pytest.approx(two.confidence, abs=1e-5)
            assert [c.label for c in one.top(2)] == [c.label for c in two.top(2)]
    frames = load(tmp_path / "whole.onnx").evidence(images[:3])
    other_frames = model.evidence(images[:3])
    for one, two in zip(frames, other_frames, strict=True):
        assert np.allclose(np.exp(one.log_probabilities), np.exp(two.log_probabilities), atol=1e-5)
