"""Naming the task: tickets together, every rule by hand, what is kept and when it is computed."""

import math

import pytest
import torch

from rivals.errors import RivalsError
from rivals.experiment.evaluation import inference_due
from rivals.learn.method import methods
from rivals.naming import gaussian
from rivals.naming.rules import RULES
from rivals.naming.scores import Pixels, calibration, name_tasks, small
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from rivals.streams.task import Examples, Preprocessing, Task
from rivals.tickets import parallel as together
from rivals.tickets.parallel import ParallelTickets, TicketOutput
from toys import lessons, make, same_bits, teach

PLAIN = Preprocessing(255.0, (0.5,), (0.25,))
OTHER = Preprocessing(16.0, (0.1,), (0.7,))
ALL = list(methods)


def cut(network, number, classes, widths=(), **settings):
    plan = NetworkPlan(
        NetworkSettings(architecture=network, widths=widths, **settings), (1, 32, 32)
    )
    native = plan.dense(Seed(number), "ticket")
    native.add("task", classes)
    return native.cut("task").eval()


def pixels(count, seed=0, shape=(1, 32, 32), high=256):
    generator = Seed(seed).torch()
    return torch.randint(0, high, (count, *shape), generator=generator, dtype=torch.uint8)


def features_of(ticket, images):
    """What flows into the last linear layer, by a hook."""
    found = []
    head = [module for module in ticket.modules() if isinstance(module, torch.nn.Linear)][-1]
    hook = head.register_forward_hook(lambda module, inputs, output: found.append(inputs[0]))
    with torch.no_grad():
        ticket(images)
    hook.remove()
    return found[0]


@pytest.mark.parametrize(
    ("network", "widths"),
    [("mlp", (16, 24)), ("lenet", ()), ("alexnet", (16, 16, 32, 64, 64)),
     ("resnet-small", (8, 16, 32, 64))],
)  # fmt: skip
def test_together_is_one_by_one(network, widths, monkeypatch):
    monkeypatch.setattr(together, "IMAGES", 4)
    monkeypatch.setattr(together, "TICKETS", 2)
    tickets = [cut(network, number, 2 + number % 3, widths, units=4) for number in range(5)]
    tickets.append(cut("mlp", 9, 7, (8, 12), units=4))  # of another shape
    preparations = [PLAIN, PLAIN, OTHER, PLAIN, OTHER, PLAIN]
    images = pixels(6)
    readings = ParallelTickets(tickets, preparations)(images)
    assert [reading.scores.shape[1] for reading in readings] == [2, 3, 4, 2, 3, 7]
    for ticket, prepare, reading in zip(tickets, preparations, readings, strict=True):
        with torch.no_grad():
            alone = ticket(prepare(images))
        assert torch.allclose(reading.scores, alone, atol=1e-5)
        assert torch.allclose(reading.features, features_of(ticket, prepare(images)), atol=1e-5)


def test_tickets_of_one_shape_are_one_stack():
    tickets = [cut("mlp", number, 2 + number, (16, 16), units=4) for number in range(3)]
    assert len(ParallelTickets(tickets, [PLAIN] * 3).stacks) == 1
    assert len(ParallelTickets(tickets, [PLAIN, OTHER, PLAIN]).stacks) == 2


def test_networks_without_norms_and_biases_can_be_stacked():
    tickets = [cut("lenet", number, 3, units=4, norm="none") for number in range(2)]
    images = pixels(3)
    for ticket, reading in zip(tickets, ParallelTickets(tickets, [PLAIN] * 2)(images), strict=True):
        assert torch.allclose(reading.scores, ticket(PLAIN(images)), atol=1e-5)


def test_scores_of_outputs_by_hand():
    reading = TicketOutput(torch.zeros(1, 1), torch.tensor([[math.log(3.0), 0.0]]))
    p = torch.tensor([0.75, 0.25])
    nowhere = torch.empty(1)
    assert RULES["confidence"].score(nowhere, reading, {}).item() == pytest.approx(0.75)
    entropy = RULES["entropy"].score(nowhere, reading, {}).item()
    assert entropy == pytest.approx(float((p * p.log()).sum()))
    kept = {"level": torch.tensor([1.0]), "spread": torch.tensor([2.0])}
    energy = RULES["energy"].score(nowhere, reading, kept).item()
    assert energy == pytest.approx((math.log(4.0) - 1) / 2)


def test_a_density_is_that_of_the_normal_distribution_with_the_same_covariance():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 3, generator=generator) * torch.tensor([3.0, 1.0, 0.5]) + 2
    kept = gaussian.fit(rows, torch.zeros(500))
    apart = (rows - rows.mean(0)).double()
    covariance = apart.T @ apart / 500
    extra = gaussian.SHRINK * covariance.diagonal().mean() + gaussian.FLOOR
    full = torch.distributions.MultivariateNormal(
        rows.mean(0).double(), covariance + extra * torch.eye(3)
    )  # with three coordinates, two directions and one rest are all there is
    found = gaussian.log_density(rows, kept)
    assert torch.allclose(found.double(), full.log_prob(rows.double()), atol=1e-3)


def test_the_nearest_class_mean_counts():
    rows = torch.tensor([[0.0, 0.0], [0.2, 0.0], [5.0, 5.0], [5.2, 5.0]])
    kept = gaussian.fit(rows, torch.tensor([4, 4, 7, 7]))  # labels need not be 0, 1, …
    assert torch.allclose(kept["means"], torch.tensor([[0.1, 0.0], [5.1, 5.0]]))
    near, far, other = gaussian.log_density(
        torch.tensor([[0.1, 0.0], [2.5, 2.5], [5.1, 5.0]]), kept
    ).tolist()
    assert near == pytest.approx(other)
    assert near > far


@pytest.mark.parametrize("rows", [torch.zeros(1, 4), torch.ones(5, 1), torch.randn(2, 40)])
def test_few_or_equal_rows_still_have_a_density(rows):
    kept = gaussian.fit(rows, torch.zeros(len(rows)))
    assert torch.isfinite(gaussian.log_density(rows + 1, kept)).all()


def test_small_images():
    images = pixels(2, shape=(3, 20, 6))
    assert small(images).shape == (2, 3 * 8 * 6)
    exact = pixels(2, shape=(1, 8, 8))
    assert torch.allclose(small(exact), exact.flatten(1) / 255)


def test_pixels_and_confidence_are_added():
    images = pixels(4)
    reading = TicketOutput(torch.zeros(4, 2), torch.randn(4, 3))
    kept = Pixels().keep(toy_task(pixels(30, 1)), lambda images: reading)
    rule = RULES["pixels+confidence"]
    sure = torch.softmax(reading.scores, 1).max(1).values.log()
    density = gaussian.log_density(small(images), kept)
    assert torch.allclose(rule.score(rule.view(images), reading, kept), sure + 0.03 * density)


def test_the_best_score_names_the_task_and_its_ticket_the_class():
    ones, twos = torch.tensor([[5.0, 0.0], [0.0, 0.1]]), torch.tensor([[1.0, 0.0], [0.0, 9.0]])
    readings = [TicketOutput(torch.zeros(2, 1), scores) for scores in (ones, twos)]
    task, label, sure = name_tasks(RULES["confidence"], torch.empty(2), readings, [{}, {}])
    assert task.tolist() == [0, 1]
    assert label.tolist() == [0, 1]
    assert sure.tolist() == pytest.approx([1 / (1 + math.exp(-5)), 1 / (1 + math.exp(-9))])


def toy_task(images, validation=None):
    train = Examples(images, torch.arange(len(images)) % 2)
    held = train if validation is None else validation
    return Task("toy", ("a", "b"), train, held, PLAIN)


def test_calibration_is_by_validation_data_and_without_them_by_training_data():
    task = lessons(1)[0].task
    assert calibration(task) is task.validation
    nothing = Examples(task.train.images[:0], task.train.labels[:0])
    assert calibration(toy_task(task.train.images, nothing)).images is task.train.images


def test_standardised_scores_of_the_own_validation_images_are_standard():
    method = make(rule="features", epochs=1)
    task = lessons(1)[0].task
    teach(method, task)
    kept = method.known[task.name].kept
    run = method.predictor().group()
    rule, images = RULES["features"], task.validation.images
    scores = rule.score(rule.view(images), run(images)[0], kept)
    assert scores.mean().item() == pytest.approx(0, abs=1e-4)
    assert scores.std(correction=0).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rule", ["filters", "filters+judge", *RULES])
def test_every_rule_serves_every_method_and_is_saved(name, rule):
    method = make(name, epochs=1, rule=rule)
    found = lessons(2)
    for lesson in found:
        teach(method, lesson.task)
    again = make(name, epochs=1, rule=rule)
    again.load(method.state())
    images = torch.cat([lesson.test.images[:9] for lesson in found])
    one, other = method.predict(images, None), again.predict(images, None)
    assert one.tasks == other.tasks == tuple(method.known)
    for field in ("task", "label", "confidence"):
        assert torch.equal(getattr(one, field), getattr(other, field))
    for task in method.known:
        assert same_bits(method.known[task].kept, again.known[task].kept)
    assert method.kept_bytes() == again.kept_bytes()
    assert sum(method.footprint().values()) >= method.kept_bytes()


def test_what_is_kept_is_counted():
    sizes = {}
    for rule in ("confidence", "pixels"):
        method = make(epochs=1, rule=rule)
        teach(method, lessons(1)[0].task)
        sizes[rule] = method.footprint()["tasks"]
    assert sizes["pixels"] - sizes["confidence"] == 4 * (64 + 64 * 16 + 16 + 1)


def test_a_task_that_is_being_learned_is_not_inferred():
    one, two = lessons(2)
    method = make(epochs=1)
    with pytest.raises(RivalsError, match="No task is learned yet"):
        method.predict(one.test.images, None)
    teach(method, one.task)
    method.start(two.task)
    assert method.predict(two.test.images, None).tasks == (one.task.name,)
    resumed = make(epochs=1)
    resumed.load(method.state())
    assert resumed.predict(two.test.images, None).tasks == (one.task.name,)


def test_tickets_are_cut_again_after_learning_and_after_a_drop():
    one, two = lessons(2)
    method = make("finetune", epochs=1)
    teach(method, one.task)
    before = method.predict(one.test.images, None).confidence
    teach(method, two.task)
    run = method.predictor().group()
    assert run is method.predictor().group()
    assert not torch.equal(torch.softmax(run(one.test.images)[0].scores, 1).max(1).values, before)
    twta = make(epochs=1)
    for lesson in (one, two):
        teach(twta, lesson.task)
    assert twta.predict(one.test.images, None).tasks == (one.task.name, two.task.name)
    twta.drop(one.task.name)
    assert twta.predict(one.test.images, None).tasks == (two.task.name,)


def test_different_pictures_are_told_apart_where_confidence_fails():
    """Two tasks with pictures of different kinds: bright ones and dark ones."""
    task = lessons(1)[0].task
    bright = 16 - task.train.images
    tasks = [task, Task("bright", task.classes, Examples(bright, task.train.labels),
                        task.validation, task.preprocessing)]  # fmt: skip
    method = make(epochs=1)
    for each in tasks:
        teach(method, each)
    assert (method.predict(task.train.images, None).task == 0).all()
    assert (method.predict(bright, None).task == 1).all()


def test_an_unknown_rule_is_refused():
    with pytest.raises(
        RivalsError, match=r"naming\.rule is 'luck'; use filters, filters\+judge, confidence"
    ):
        make(rule="luck")


def test_a_stream_is_inferred_five_times_and_a_short_one_at_every_task():
    assert [n for n in range(1, 101) if inference_due(n, 100)] == [20, 40, 60, 80, 100]
    assert [n for n in range(1, 4) if inference_due(n, 3)] == [1, 2, 3]
