"""The judge: rows left out of a regression, exemplars, weights, and real tickets before it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from rivals.errors import RivalsError
from rivals.naming import judge
from rivals.naming.judge import START, Judge, exemplars, weigh
from rivals.naming.ridge import Ridge
from rivals.naming.rules import RULES
from rivals.streams.task import Examples, Task
from rivals.tickets.parallel import TicketOutput
from toys import lessons, make, shortened, teach


def solved(rows, targets, penalty):
    square = rows.T @ rows + penalty * torch.eye(rows.shape[1], dtype=torch.float64)
    return torch.linalg.solve(square, rows.T @ targets)


@pytest.mark.parametrize("shape", [(12, 30), (30, 12)])
def test_left_out_is_what_the_other_rows_predict(shape):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(*shape, generator=generator, dtype=torch.float64)
    targets = torch.randn(shape[0], 3, generator=generator, dtype=torch.float64)
    ridge = Ridge(rows, targets)
    assert torch.allclose(ridge.weights(0.7), solved(rows, targets, 0.7))
    for number, left in enumerate(ridge.left_out(0.7)):
        others = torch.arange(shape[0]) != number
        assert torch.allclose(left, rows[number] @ solved(rows[others], targets[others], 0.7))


def test_rows_that_depend_on_each_other_do_no_harm():
    rows = torch.ones(6, 4, dtype=torch.float64)
    targets = torch.arange(6, dtype=torch.float64)[:, None]
    left = Ridge(rows, targets).left_out(1e-9)
    assert torch.allclose(left, (targets.sum() - targets) / 5, atol=1e-6)


def test_weights_stay_where_they_start_until_something_is_seen():
    _, weights = weigh(torch.zeros(3, 8, 4).double(), torch.zeros(8).long())
    assert torch.allclose(weights, torch.tensor(START).double())


def test_words_weigh_as_much_as_they_are_worth():
    labels = torch.arange(200) % 4
    generator = torch.Generator().manual_seed(0)
    truth = 3.0 * F.one_hot(labels, 4).double()
    noise = torch.randn(2, 200, 4, generator=generator, dtype=torch.float64)
    loss, weights = weigh(torch.stack([3 * noise[0], noise[1], truth]), labels)
    assert weights[2] > 10 * START[2]
    assert weights[0] < START[0] / 2
    assert loss < 0.5


def counted(train, validation):
    """A task of two classes with so many images of each."""

    def some(count, start):
        labels = torch.arange(2 * count) % 2
        images = torch.arange(start, start + 2 * count, dtype=torch.uint8).view(-1, 1, 1, 1)
        return Examples(images.expand(-1, 1, 8, 8).clone(), labels)

    shown = lessons(1)[0].task
    return Task("toy", ("a", "b"), some(train, 0), some(validation, 100), shown.preprocessing)


@pytest.mark.parametrize(
    ("train", "validation", "wanted", "held"),
    [(20, 3, 5, 3), (20, 9, 5, 5), (20, 0, 5, 0), (2, 1, 3, 1), (1, 0, 1, 0)],
)
def test_exemplars_come_from_validation_first_and_none_twice(train, validation, wanted, held):
    kept = exemplars(counted(train, validation), 5)
    values = kept["images"][:, 0, 0, 0]
    assert torch.bincount(kept["labels"].long()).tolist() == [wanted, wanted]
    assert len(values.unique()) == 2 * wanted
    assert torch.equal(values >= 100, kept["held"])
    assert int(kept["held"].sum()) == 2 * held
    assert torch.equal(values % 2, kept["labels"].to(torch.uint8))


def test_a_loud_ticket_is_not_believed():
    """Two tasks of two classes on equal pixels; the first ticket shouts at pictures of both."""
    own = torch.arange(4).repeat(30)  # class over both tasks
    generator = torch.Generator().manual_seed(0)
    noise = 0.3 * torch.randn(len(own), 4, generator=generator)
    loud = 9.0 * F.one_hot(own % 2, 2) + noise[:, :2]
    quiet = 1.0 * F.one_hot(own % 2, 2) + noise[:, 2:]
    familiar = torch.stack([own < 2, own >= 2], 1).float() + noise[:, :2]
    readings = [TicketOutput(familiar[:, :1], loud), TicketOutput(familiar[:, 1:], quiet)]
    images = torch.full((len(own), 1, 8, 8), 7, dtype=torch.uint8)
    task = replace(counted(9, 9), train=Examples(images, own % 2))
    density = RULES["pixels"].keep(task, None)

    def taken(rows):
        return [TicketOutput(each.features[rows], each.scores[rows]) for each in readings]

    learned, asked = torch.arange(60), torch.arange(60, 120)
    order = [learned[own[learned] // 2 == number] for number in (0, 1)]
    kept = [
        {**density, "images": images[o], "labels": (own[o] % 2).short(), "held": o >= 0}
        for o in order
    ]
    namer = Judge().namer(kept, lambda found: taken(torch.cat(order)))
    named = {
        "judge": namer(images[asked], taken(asked)),
        "confidence": RULES["confidence"].namer([{}, {}], None)(images[asked], taken(asked)),
    }
    right = {name: float((n[0] == own[asked] // 2).float().mean()) for name, n in named.items()}
    assert right["confidence"] == 0.5
    assert right["judge"] > 0.8
    assert (named["judge"][1] == own[asked] % 2).float().mean() > 0.9


def taught(rule, found, **settings):
    method = make(rule=rule, **settings)
    for lesson in found:
        teach(method, lesson.task)
    return method


def right(method, found):
    """The share of test images whose task and class are found with the task unknown."""
    hits = total = 0
    for number, lesson in enumerate(found):
        said = method.predict(lesson.test.images, None)
        hits += int(((said.task == number) & (said.label == lesson.test.labels)).sum())
        total += len(lesson.test)
    return hits / total


def test_real_tickets_are_judged_better_than_by_their_confidence_and_answer_as_before():
    found = lessons(5)
    methods = {rule: taught(rule, found, epochs=5) for rule in ("confidence", "judge")}
    assert right(methods["judge"], found) > right(methods["confidence"], found) + 0.1
    for lesson in found:
        one, other = (m.predict(lesson.test.images, lesson.task.name) for m in methods.values())
        assert torch.equal(one.label, other.label)
        assert torch.equal(one.confidence, other.confidence)


def test_what_is_kept_is_counted():
    found = lessons(1)
    sizes = [taught(rule, found, images_per_class=3).kept_bytes() for rule in ("pixels", "judge")]
    assert sizes[1] - sizes[0] == 2 * 3 * (64 + 2 + 1)  # pixels, label, whether held out


def test_one_fit_serves_until_tasks_change():
    found = lessons(3)
    method = taught("judge", found[:2], epochs=1)
    first = method.predictor().namer
    assert method.predictor().namer is first
    method.predict(found[0].test.images, None)
    assert method.predictor().namer is first
    teach(method, found[2].task)
    assert method.predictor().namer is not first
    assert method.predictor().namer.task.tolist() == [0, 0, 1, 1, 2, 2]
    method.drop(found[0].task.name)
    said = method.predict(found[1].test.images, None)
    assert said.tasks == (found[1].task.name, found[2].task.name)
    assert method.predictor().namer.task.tolist() == [0, 0, 1, 1]


def joined(one, other):
    """Two tasks as one with the classes of both."""

    def both(a, b):
        labels = torch.cat([a.labels, b.labels + len(one.classes)])
        return Examples(torch.cat([a.images, b.images]), labels)

    return Task("both", one.classes + other.classes, both(one.train, other.train),
                both(one.validation, other.validation), one.preprocessing)  # fmt: skip


def test_tasks_may_differ_in_their_classes_and_one_is_enough():
    one, two, three = lessons(3)
    method = make(rule="judge", epochs=5)
    teach(method, joined(one.task, two.task))
    alone = method.predict(two.test.images, None)
    assert alone.tasks == ("both",)
    assert (alone.label == two.test.labels + 2).float().mean() > 0.7
    teach(method, three.task)
    said = method.predict(three.test.images, None)
    assert ((said.task == 1) & (said.label == three.test.labels)).float().mean() > 0.7
    assert ((said.confidence > 0) & (said.confidence <= 1)).all()
    assert method.predictor().namer.label.tolist() == [0, 1, 2, 3, 0, 1]


def test_few_images_and_no_validation_are_enough():
    found = lessons(2)
    method = make(rule="judge", epochs=1)
    for lesson in found:
        task = shortened(lesson.task, 6)
        teach(method, replace(task, validation=task.validation.subset(torch.arange(0))))
    kept = [known.kept for known in method.known.values()]
    assert [len(each["labels"]) for each in kept] == [6, 6]
    assert not any(each["held"].any() for each in kept)
    assert torch.isfinite(method.predict(found[0].test.images, None).confidence).all()


@pytest.mark.parametrize("rule", ["filters", "filters+judge", *RULES])
def test_the_largest_belief_is_what_is_named(rule):
    found = lessons(2)
    method = taught(rule, found, epochs=1)
    images = torch.cat([lesson.test.images for lesson in found])
    together = method.predictor().group()
    values, sure = method.predictor().namer.belief(images, together(images))
    said, best = method.predict(images, None), values.argmax(1)
    assert torch.equal(best, 2 * said.task + said.label)
    assert torch.allclose(sure.gather(1, best[:, None])[:, 0], said.confidence)


@pytest.mark.parametrize("count", [0, -3])
def test_a_judge_without_images_is_refused(count):
    with pytest.raises(
        RivalsError, match=rf"naming\.images_per_class is {count}, but must be at least 1\."
    ):
        make(rule="judge", images_per_class=count)


def test_more_than_memory_holds_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(judge, "LARGEST", 10)
    found = lessons(2)
    method = taught("judge", found, epochs=1)
    with pytest.raises(RivalsError, match=r"40 exemplars .* use naming.rule=filters"):
        method.predict(found[0].test.images, None)


def test_a_judge_beside_filters_weighs_them_and_knows_strangers():
    """What the discriminant says of a class is one of its words; familiarity is the filters'."""
    found = lessons(3)
    method = taught("filters+judge", found, epochs=5)
    alone = taught("filters", found, epochs=5)
    assert right(method, found) >= right(alone, found)
    images, predictor = found[0].test.images, method.predictor()
    outputs = predictor.group()(images)
    which = torch.zeros(len(images), dtype=torch.long)
    assert torch.equal(
        predictor.namer.familiarity(outputs, which),
        alone.predictor().namer.familiarity(outputs, which),
    )
    joint = predictor.namer.among_all(images, outputs)[3]
    assert torch.allclose(joint.sum(1), torch.ones(len(images)), atol=1e-5)
    assert predictor.predict(images, reject=0.05).rejected is not None
