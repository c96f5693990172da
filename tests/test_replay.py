"""ER, GEM, iCaRL and IL2M: their invariants, and what they remember."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from rivals.baselines.gem import project
from rivals.baselines.icarl import class_means, empty_bias
from rivals.baselines.il2m import rectified
from rivals.baselines.memory.exemplar_stores import Budget, MemorySettings
from rivals.errors import RivalsError
from rivals.seeds import Seed
from rivals.streams.batching import Batching, epoch
from rivals.streams.task import Preprocessing, Task
from toys import accuracy, lessons, make, same_bits, shortened, steps_of, teach, ticket_bits

NET = {"architecture": "mlp", "widths": (64, 32), "units": 1}
KEPT = {"memory.size": 10, "memory.counted_in": "class"}
SMALL = {"network": NET, "epochs": 6}
INCREMENTAL = [("er", {"loss_over": "seen"}), ("icarl", {}), ("il2m", {})]


def taught(name, found, **settings):
    method = make(name, **{**SMALL, **settings})
    for lesson in found:
        teach(method, lesson.task)
    return method


def mean_accuracy(method, found):
    return sum(accuracy(method, lesson) for lesson in found) / len(found)


def unnamed_accuracy(method, found):
    """Percent right, task and class, with the task unknown."""
    right = []
    for number, lesson in enumerate(found):
        answer = method.predict(lesson.test.images, None)
        right.append((answer.task == number) & (answer.label == lesson.test.labels))
    return 100 * float(torch.cat(right).float().mean())


# Shared norms ------------------------------------------------------------------------------------


def test_shared_norms_are_one_and_are_counted_once():
    found = lessons(2)
    shared = taught("finetune", found, epochs=1, shared_norms=True)
    apart = taught("finetune", found, epochs=1)
    one, two = (lesson.task.name for lesson in found)
    for layer in shared.network(one).layers():
        assert layer.norm.state(one) is layer.norm.state(two)
    for layer in apart.network(one).layers():
        assert layer.norm.state(one) is not layer.norm.state(two)
    norm = sum((4 * layer.width + 1) * 4 for layer in apart.network(one).layers())
    assert apart.footprint()["weights"] - shared.footprint()["weights"] == norm
    parameters = shared.network(one).all_parameters()
    assert len({id(p) for p in parameters}) == len(parameters) == 2 + 2 * 2 + 2 * 2
    again = make("finetune", **SMALL, shared_norms=True)
    again.load(shared.state())
    assert same_bits(ticket_bits(shared, one), ticket_bits(again, one))
    for layer in again.network(one).layers():
        assert layer.norm.state(one) is layer.norm.state(two)


@pytest.mark.parametrize("name", ["icarl", "il2m"])
def test_classes_of_all_tasks_need_one_norm(name):
    with pytest.raises(RivalsError, match=r"shared_norms is false, but .* use shared_norms=true"):
        make(name, shared_norms=False)
    with pytest.raises(RivalsError, match="shared_norms is false"):
        make("er", shared_norms=False, loss_over="seen")


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("class", Budget(per_class=7)), ("images", Budget(total=7)), ("bytes", Budget(bytes=7))],
)
def test_a_budget_is_a_number_and_its_unit(unit, expected):
    assert MemorySettings(size=7, counted_in=unit).budget == expected


# GEM ---------------------------------------------------------------------------------------------


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=Seed(seed).torch())


def test_a_gradient_that_violates_nothing_is_untouched():
    past = rows(3, 50)
    gradient = past.sum(0) * 3
    assert (past @ gradient > 0).all()
    assert project(gradient, past, margin=0.5) is gradient


@pytest.mark.parametrize("seed", range(20))
def test_after_projection_no_past_task_is_contradicted(seed):
    tasks = 1 + seed % 6
    past, gradient = rows(tasks, 400, seed=seed), rows(400, seed=100 + seed)
    better = project(gradient, past, margin=0.0, ridge=1e-12)
    limit = -1e-6 * better.norm() * past.norm(dim=1)
    assert (past.double() @ better.double() >= limit).all()
    pushed = project(gradient, past, margin=0.5).double()
    if pushed is not gradient:
        assert (past.double() @ pushed >= -1e-2 * past.norm(dim=1)).all()


def test_one_constraint_takes_the_component_away():
    past, gradient = rows(1, 300, seed=3), rows(300, seed=4)
    if past[0] @ gradient > 0:
        gradient = -gradient
    expected = gradient - (past[0] @ gradient) / past[0].square().sum() * past[0]
    assert torch.allclose(project(gradient, past, 0.0, 1e-12), expected, atol=1e-6)


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_the_quadratic_program_is_solved(margin):
    past, gradient = rows(4, 30, seed=7).double(), -rows(4, 30, seed=7).double().sum(0)
    gram = (past @ past.T).numpy() + 1e-3 * np.eye(4)
    along = (past @ gradient).numpy()
    other = minimize(
        lambda v: v @ gram @ v / 2 + along @ v, np.full(4, margin + 1.0),
        jac=lambda v: gram @ v + along, bounds=[(margin, None)] * 4, tol=1e-12,
    )  # fmt: skip
    better = project(gradient, past, margin)
    assert torch.allclose(better, gradient + torch.from_numpy(other.x) @ past, atol=1e-4)


def test_gradients_that_are_no_numbers_are_told():
    with pytest.raises(RivalsError, match="lower lr"):
        project(torch.ones(5), torch.full((2, 5), torch.nan), 0.5)


def test_gem_asks_every_past_ring_and_moves_old_heads():
    found = lessons(3)
    method = taught("gem", found[:2], epochs=2, **KEPT)
    assert [len(method.memory.all(lesson.task.name).labels) for lesson in found[:2]] == [20, 20]
    method.start(found[2].task)
    parameters, names = method.trained(), [lesson.task.name for lesson in found]
    gradients = {name: method.past_gradient(name, parameters) for name in names[:2]}
    heads = {name: method.network(name).heads[name].weight for name in names}
    places = {id(p): place for place, p in enumerate(parameters)}
    sizes = [p.numel() for p in parameters]
    for name, gradient in gradients.items():
        pieces = torch.split(gradient, sizes)
        for other, head in heads.items():
            assert bool(pieces[places[id(head)]].any()) == (other == name)
    before = {name: head.detach().clone() for name, head in heads.items()}
    steps_of(method, found[2].task)
    assert all(not torch.equal(before[name], heads[name]) for name in names)


def test_past_gradients_are_charged():
    found, spent = lessons(3), []
    method = make("gem", **{**SMALL, "epochs": 1}, **KEPT)
    for lesson in found:
        teach(method, shortened(lesson.task, 80))
        spent.append(method.spent)
    # Two steps of 40 images, and 20 exemplars of each past task in every step.
    for past in (1, 2):
        assert spent[past] / spent[0] == pytest.approx(1 + past * 20 / 40, rel=0.1)


# ER ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"shared_norms": False}, {"loss_over": "seen"}, {"clip_grad": 0.1}]
)
def test_replay_reaches_its_own_head_and_costs_its_images(settings):
    one, two = lessons(2)
    method = make("er", **{**SMALL, "epochs": 1}, replay_size=10, **settings)
    teach(method, shortened(one.task, 80))
    method.start(shortened(two.task, 80))
    old = method.network("").heads[one.task.name].weight
    before = old.detach().clone()
    steps_of(method, shortened(two.task, 80))
    assert not torch.equal(old, before)
    assert [kind.split(" ×")[0] for kind in method.flops] == ["with 10 exemplars"]
    plain = make("finetune", **{**SMALL, "epochs": 1})
    teach(plain, shortened(one.task, 80))
    assert method.spent / plain.spent == pytest.approx(50 / 40, rel=0.02)


def test_every_example_is_offered_once_and_labels_stay_with_images():
    found = lessons(2)
    method = taught("er", found, epochs=3, **{"memory.size": 60})
    assert sum(method.memory.stores.seen.values()) == sum(len(f.task.train) for f in found)
    assert len(method.memory) == 60
    for lesson in found:
        kept, train = method.memory.all(lesson.task.name), lesson.task.train
        for image, label in zip(kept.raw, kept.labels, strict=True):
            same = (train.images == image).flatten(1).all(1)
            assert label in train.labels[same]


# Classes of all tasks ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings"), INCREMENTAL)
def test_without_a_task_all_classes_seen_compete(name, settings):
    found = lessons(3)
    method = taught(name, found, epochs=10, **KEPT, **settings)
    known, unnamed = mean_accuracy(method, found), unnamed_accuracy(method, found)
    assert known > 90
    assert 60 < unnamed <= known
    images = found[1].test.images
    answer = method.predict(images, None)
    scores = method.seen.scores(images, answer.tasks)
    assert scores.shape == (len(images), 6)
    assert method.known["0-1"].kept == {}, "nothing else is needed to name a task"
    # With the task given, the same scores are restricted to its classes.
    own = method.predict(images, "2-3")
    assert torch.equal(own.label, scores[:, 2:4].argmax(1))


@pytest.mark.parametrize(("name", "settings"), INCREMENTAL)
def test_nothing_is_inferred_before_something_is_learned(name, settings):
    with pytest.raises(RivalsError, match="No task is learned yet"):
        make(name, **settings).predict(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), None)


def test_a_union_mixes_tasks_and_prepares_each_image_as_its_task_does():
    one, two = lessons(2)
    other = Preprocessing(scale=16.0, mean=(0.25,), std=(2.0,))
    changed = Task(two.task.name, two.task.classes, two.task.train, two.task.validation, other)
    for name in ("icarl", "il2m"):
        method = make(name, **{**SMALL, "epochs": 1}, **KEPT)
        teach(method, one.task)
        method.start(changed)
        (union,) = method.training_set(changed)
        assert len(union.train) == 20 + len(changed.train)
        assert union.classes == ("0", "1", "2", "3")
        assert set(union.train.labels[:20].tolist()) == {0, 1}
        assert set(union.train.labels[20:].tolist()) == {2, 3}
        (batch,) = epoch([union], Batching(len(union.train)), Seed(0))
        images = method.seen.preprocess(batch)
        old = batch.labels < 2
        assert torch.equal(images[old], one.task.preprocessing(batch.raw[old]))
        assert torch.equal(images[~old], other(batch.raw[~old]))
        steps_of(method, changed)
        method.finish(changed)
        assert method.predict(one.test.images, None).tasks == (one.task.name, two.task.name)


# iCaRL -------------------------------------------------------------------------------------------


def test_the_mean_of_all_exemplars_is_the_class_mean():
    points, labels = rows(60, 5).abs(), torch.arange(60) % 3
    means = class_means(points, labels, 4)
    unit = points / points.norm(dim=1, keepdim=True)
    for label in range(3):
        mean = unit[labels == label].mean(0)
        assert torch.allclose(means[label], mean / mean.norm(), atol=1e-6)
    assert not means[3].any()
    assert empty_bias(means).tolist() == [0, 0, 0, -1e4]


def test_exemplars_are_a_prefix_of_what_they_were():
    found = lessons(3)
    method = make(
        "icarl", **{**SMALL, "epochs": 1}, **{"memory.size": 24, "memory.counted_in": "images"}
    )
    before = {}
    for count, lesson in enumerate(found, 1):
        teach(method, lesson.task)
        room = 24 // (2 * count)
        for task in method.memory.tasks():
            kept = method.memory.all(task)
            for label in (0, 1):
                images = kept.raw[kept.labels == label]
                assert len(images) == room
                assert torch.equal(images, before.get((task, label), images)[:room])
                before[task, label] = images


def test_the_nearest_mean_is_what_the_ticket_names():
    found = lessons(2)
    method = taught("icarl", found, epochs=3, **KEPT)
    images = found[0].test.images
    points = torch.nn.functional.normalize(method.seen.features(images, "0-1"), dim=1)
    everything = torch.cat([method.means[task] for task in method.known])
    nearest = torch.cdist(points, everything).argmin(1)
    answer = method.predict(images, None)
    assert torch.equal(2 * answer.task + answer.label, nearest)
    among = torch.cdist(points, method.means["0-1"]).argmin(1)
    assert torch.equal(method.predict(images, "0-1").label, among)
    ticket = method.ticket("0-1")(found[0].task.preprocessing(images))
    assert torch.equal(ticket.argmax(1), among)


def test_class_means_follow_the_weights_and_mirrors_enter_only_with_flips():
    found = lessons(2)
    method = taught("icarl", found[:1], epochs=1, **KEPT)
    first = method.means["0-1"].clone()
    teach(method, found[1].task)
    assert not torch.equal(first, method.means["0-1"]), "computed anew after every task"
    plain = method.means_of("0-1")
    assert torch.equal(plain, method.means["0-1"])
    mirroring = make("icarl", **SMALL, **KEPT, augmentation="flip")
    mirroring.load(method.state())
    assert not torch.equal(mirroring.means_of("0-1"), plain)


def test_the_teacher_is_the_network_before_the_task_and_leaves_after_it():
    found = lessons(2)
    method = taught("icarl", found[:1], epochs=1, **KEPT)
    assert method.teacher is None
    before = {k: t.clone() for k, t in method.network("").tensors().items()}
    weights = method.footprint()["weights"]
    method.start(found[1].task)
    assert method.footprint()["teacher"] == weights
    steps_of(method, found[1].task)
    assert same_bits(before, method.teacher.tensors())
    method.finish(found[1].task)
    assert method.footprint()["teacher"] == 0
    assert method.footprint()["means"] == 4 * 32 * 4


@pytest.mark.parametrize("objective", ["bce", "ce"])
def test_targets_of_old_classes_are_the_teachers(objective):
    found = lessons(2)
    method = taught("icarl", found[:1], epochs=1, objective=objective, **KEPT)
    method.start(found[1].task)
    (union,) = method.training_set(found[1].task)
    batch = next(iter(epoch([union], Batching(40), Seed(0))))
    loss, scores = method.loss(batch)
    old = method.teacher(method.seen.preprocess(batch), "0-1")
    if objective == "bce":
        targets = torch.cat([old.sigmoid(), torch.nn.functional.one_hot(batch.labels, 4)[:, 2:]], 1)
        p = scores.sigmoid()
        expected = -(targets * p.log() + (1 - targets) * (1 - p).log()).sum(1).mean()
    else:
        soft, mine = (old / 2).softmax(1), (scores[:, :2] / 2).log_softmax(1)
        expected = (
            torch.nn.functional.cross_entropy(scores, batch.labels) - (soft * mine).sum(1).mean()
        )
    assert torch.allclose(loss, expected, atol=1e-4)


# IL2M --------------------------------------------------------------------------------------------


def test_rectification_raises_old_classes_where_a_new_one_is_best():
    new = torch.tensor([False, False, True, True])
    scores = torch.tensor([[0.2, 0.1, 0.6, 0.1], [0.5, 0.1, 0.3, 0.1]])
    raised = torch.tensor([4.0, 2.0, 9.0, 9.0])
    found = rectified(scores, raised, new)
    assert torch.allclose(found, torch.tensor([[0.8, 0.2, 0.6, 0.1], [0.5, 0.1, 0.3, 0.1]]))
    assert torch.equal(rectified(scores, torch.ones(4), new), scores)


@pytest.mark.parametrize("seed", range(5))
def test_rectification_changes_no_new_class_and_no_order_among_equals(seed):
    new, scores = torch.arange(8) >= 5, rows(50, 8, seed=seed).softmax(1)
    found = rectified(scores, torch.full((8,), 3.0), new)
    assert torch.equal(found[:, 5:], scores[:, 5:])
    assert torch.equal(found[:, :5].argsort(1), scores[:, :5].argsort(1))


@pytest.mark.parametrize("settings", [{}, {"score": "logit"}, {"exemplar_choice": "random"}])
def test_statistics_are_what_they_say(settings):
    found = lessons(2)
    method = taught("il2m", found[:1], epochs=2, **KEPT, **settings)
    first = method.initial["0-1"].clone()
    teach(method, found[1].task)
    assert torch.equal(method.initial["0-1"], first), "stored for good"
    assert not torch.equal(method.present["0-1"], first)
    assert torch.equal(method.present["2-3"], method.initial["2-3"])
    task = found[1].task
    with torch.no_grad():
        scores = method.seen.scores(task.train.images, tuple(method.known))
    scores = scores.softmax(1) if settings.get("score") != "logit" else scores
    for label in (0, 1):
        own = scores[task.train.labels == label][:, 2 + label]
        assert own.mean() == pytest.approx(float(method.initial["2-3"][label]), rel=1e-3)
    best = scores.max(1).values.mean()
    assert best == pytest.approx(float(method.confidence["2-3"]), rel=1e-3)
    assert method.footprint()["statistics"] == 4 * (2 * 4 + 2)
    answer = method.predict(found[0].test.images, None)
    assert ((answer.confidence > 0) & (answer.confidence <= 1)).all()


def test_rectifying_changes_only_what_is_said_without_a_task():
    found = lessons(4)
    settings = {"epochs": 4, "memory.size": 2}
    plain, right = (taught("il2m", found, rectify=on, **settings) for on in (False, True))
    for lesson in found:
        task = lesson.task.name
        assert same_bits(ticket_bits(plain, task), ticket_bits(right, task))
        assert accuracy(plain, lesson) == accuracy(right, lesson)
    old = found[:3]
    assert unnamed_accuracy(right, old) > unnamed_accuracy(plain, old)


def test_the_learning_rate_falls_with_the_number_of_the_task():
    method = taught("il2m", lessons(2), epochs=1)
    method.position.step = 0
    assert method.rate() == pytest.approx(0.1 / 2)
    assert make("il2m", divide_lr_by_task=False).settings.divide_lr_by_task is False


# All of them -------------------------------------------------------------------------------------


def test_replay_forgets_less_than_finetuning():
    found = lessons(4, "digits-permuted")
    settings = {"epochs": 5, "network": {"architecture": "mlp", "widths": (16, 16), "units": 1}}
    forgetful = mean_accuracy(taught("finetune", found, **settings), found)
    for name in ("er", "gem", "icarl", "il2m"):
        kept = mean_accuracy(taught(name, found, **KEPT, **settings), found)
        assert kept > forgetful + 10, name


@pytest.mark.parametrize("name", ["er", "gem", "icarl", "il2m"])
def test_exemplars_are_counted_to_the_byte(name):
    method = taught(name, lessons(2), epochs=1, **KEPT)
    assert method.footprint()["exemplars"] == 40 * (64 + 8)


VARIANTS = [
    ("er", {"shared_norms": False, "augmentation": "crop"}),
    ("er", {"loss_over": "seen", "clip_grad": 1.0, "replay_size": 3}),
    ("er", {"memory.size": 1000, "memory.counted_in": "bytes"}),
    ("gem", {"shared_norms": True, "clip_grad": 1.0, "momentum": 0.9}),
    ("icarl", {"objective": "ce", "augmentation": "crop-flip", "memory.size": 9}),
    (
        "il2m",
        {
            "exemplar_choice": "random",
            "score": "logit",
            "memory.size": 9,
            "memory.counted_in": "images",
        },
    ),
]


@pytest.mark.parametrize(("name", "settings"), VARIANTS)
def test_variants_go_on_from_the_middle_to_the_same_bits(name, settings):
    class EnoughError(Exception):
        pass

    found = [shortened(lesson.task, 90) for lesson in lessons(2)]
    whole = make(name, **settings)
    for task in found:
        teach(whole, task)
    halted, resumed = make(name, **settings), make(name, **settings)
    teach(halted, found[0])
    halted.start(found[1])

    def watch(step):
        if halted.position.step == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        steps_of(halted, found[1], watch)
    resumed.load(halted.state())
    steps_of(resumed, found[1])
    resumed.finish(found[1])
    for task in found:
        assert same_bits(ticket_bits(whole, task.name), ticket_bits(resumed, task.name))
    assert resumed.spent == whole.spent
    assert resumed.footprint() == whole.footprint()
    images = found[0].validation.images
    assert torch.equal(whole.predict(images, None).label, resumed.predict(images, None).label)
