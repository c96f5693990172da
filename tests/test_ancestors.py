"""Ancestors: unit 0 of every block belongs to a network that was trained before all tasks."""

from __future__ import annotations

from typing import Any

import torch

from rivals.learn.model_twta import ModelTWTA
from rivals.learn.trainer import Trainer
from rivals.learn.twta import CompetitionSettings, TWTASettings
from rivals.naming.discriminant import ClassStatistics, covariance, discriminant, head
from rivals.naming.task_record import TaskRecord
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.rival_network import ANCESTOR, RivalNetwork
from rivals.seeds import Seed
from rivals.streams.task import Examples, Preprocessing, Task

SHAPE = (3, 8, 8)
NETWORK = NetworkSettings(architecture="conv-small", widths=(16, 32), units=4)


def make_task(name: str, seed: int = 0, count: int = 24) -> Task:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 3
    images[labels == 1, 0] //= 4
    images[labels == 2, 1] //= 4
    examples = Examples(images, labels)
    return Task(
        name, ("a", "b", "c"), examples, examples, Preprocessing(255.0, (0.5,) * 3, (0.25,) * 3)
    )


def adopted(network: RivalNetwork) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    generator = torch.Generator().manual_seed(7)
    weights, norms = [], []
    for layer in network.layers():
        rows = layer.rivals.blocks
        columns = layer.source.blocks if layer.source else layer.weight.columns
        values = torch.randn(rows, columns, layer.weight.taps, generator=generator) * 0.2
        weights.append(values.half().float())
        row = torch.rand(rows, generator=generator) + 0.5
        norms.append({"scale": row, "shift": row - 1, "mean": row * 0.1, "var": row})
    network.adopt(weights, norms, torch.eye(network.layers()[-1].rivals.blocks))
    return weights, norms


def learner(new: float, epochs: int = 2, **changes: Any) -> ModelTWTA:
    settings = TWTASettings(new=new, epochs=epochs, batch_size=8, **changes)
    method = ModelTWTA(NetworkPlan(NETWORK, SHAPE), settings, Seed(3))
    adopted(method.network)
    return method


def test_where_the_ancestor_wins_a_task_owns_nothing() -> None:
    method = learner(new=0)
    Trainer(method).fit(make_task("one"))
    for layer in method.network.layers():
        assert len(layer.weight.owned("one")) == 0
    assert all(int(winners.max()) == 0 for winners in method.winners("one"))
    assert [rivals.units for rivals in method.network.rivals()] == [4, 4]  # nothing had to grow


def test_new_units_start_as_copies_of_the_ancestor_and_leave_it_as_it_is() -> None:
    method = learner(new=1, competition=CompetitionSettings(share=0))
    layers = method.network.layers()
    before = [method.network.ticket_slice(layer, ANCESTOR) for layer in layers]
    task = make_task("one")
    method.start(task)
    for layer, values in zip(layers, before, strict=True):
        assert torch.equal(layer.training_copy.values.contiguous(), values)
        assert bool((layer.rivals.winners["one"] > 0).all())
        assert layer.training_copy.free is None
    Trainer(method).fit(task, resume=True)
    for layer, values in zip(layers, before, strict=True):
        assert torch.equal(method.network.ticket_slice(layer, ANCESTOR), values)
        assert not torch.equal(method.network.ticket_slice(layer, "one"), values)


def test_a_share_of_the_blocks_is_new() -> None:
    method = learner(new=0.5)
    Trainer(method).fit(make_task("one"))
    for rivals, winners in zip(method.network.rivals(), method.winners("one"), strict=True):
        assert int((winners > 0).sum()) == rivals.blocks // 2


def test_many_tasks_and_a_drop_leave_the_ancestor_and_the_others() -> None:
    method = learner(new=1, epochs=1)
    ancestor = [method.network.ticket_slice(layer, ANCESTOR) for layer in method.network.layers()]
    images = torch.rand(2, *SHAPE)
    answers = {}
    for number in range(5):
        name = f"task {number}"
        Trainer(method).fit(make_task(name, number))
        answers[name] = method.ticket(name)(images)
    method.drop("task 1")
    for name, old in answers.items():
        if name != "task 1":
            assert torch.equal(method.ticket(name)(images), old)
    for layer, values in zip(method.network.layers(), ancestor, strict=True):
        assert torch.equal(method.network.ticket_slice(layer, ANCESTOR), values)


def test_the_discriminant_is_that_of_known_normal_densities() -> None:
    """With many examples, the scores are the log densities of the classes but for a constant."""
    generator = torch.Generator().manual_seed(0)
    mixing = torch.tensor([[1.0, 0.5], [0.0, 0.7]])
    means = torch.tensor([[0.0, 0.0], [1.5, 0.5], [-1.0, 1.0]])
    labels = torch.arange(30_000) % 3
    rows = means[labels] + torch.randn(30_000, 2, generator=generator) @ mixing
    covariance = mixing.T @ mixing
    weight, bias = discriminant(rows, labels, covariance)
    point = torch.tensor([0.3, 0.8])
    apart = point - means
    truth = -0.5 * torch.einsum("ci,ij,cj->c", apart, torch.linalg.inv(covariance), apart)
    scores = weight @ point + bias
    assert torch.allclose(scores - scores[0], truth - truth[0], atol=0.05)


def test_with_few_examples_the_covariance_of_other_classes_decides() -> None:
    rows = torch.tensor([[0.0, 0.0], [1.0, 1.0]])  # one example a class: no covariance at all
    weight, _ = discriminant(rows, torch.tensor([0, 1]), torch.diag(torch.tensor([1.0, 100.0])))
    assert weight[1, 0] > 50 * weight[1, 1] > 0


def test_a_head_in_closed_form_answers_by_the_features_of_the_ancestor() -> None:
    method, task = learner(new=1), make_task("one")
    network = method.network
    images = task.preprocessing(task.train.images)
    features = network.learning(False).flow(images, ANCESTOR).values
    statistics = ClassStatistics.of(features, task.train.labels)
    kept = {"prior": torch.tensor([100.0]), "scale": torch.tensor([0.5])}
    record = TaskRecord(task.classes, task.preprocessing, statistics.tensors() | kept)
    method.learn_in_closed_form("one", record)
    weight, bias = discriminant(features, task.train.labels, network.within, prior=100)
    wanted = 0.5 * (features @ weight.T + bias)
    assert torch.allclose(method.ticket("one")(images), wanted, atol=0.05)  # 16 bits a mean
    assert torch.allclose(method.ticket("one")(images), method.logits(images, "one"), atol=1e-4)
    assert all(len(layer.weight.owned("one")) == 0 for layer in network.layers())
    assert method.in_closed_form("one")


def some_statistics(seed: int, count: int) -> tuple[ClassStatistics, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows, labels = torch.randn(count, 5, generator=generator), torch.arange(count) % 3
    rows[:, 0] += labels
    return ClassStatistics.of(rows, labels), rows, labels


def test_statistics_of_two_samples_are_those_of_both_together() -> None:
    one, rows, labels = some_statistics(0, 30)
    other, more, others = some_statistics(1, 21)
    both = one.join(other)
    whole = ClassStatistics.of(torch.cat([rows, more]), torch.cat([labels, others]))
    assert torch.allclose(both.means, whole.means)
    assert torch.equal(both.counts, whole.counts)
    assert both.scatter is not None
    assert whole.scatter is not None
    assert torch.allclose(both.scatter, whole.scatter)


def test_statistics_are_stored_with_16_bits() -> None:
    found, _, _ = some_statistics(0, 30)
    kept = found.tensors()
    assert kept["means"].dtype == kept["covariance"].dtype == torch.float16
    again = ClassStatistics.from_tensors(kept)
    assert again.scatter is not None
    assert found.scatter is not None
    assert torch.allclose(again.scatter, found.scatter, rtol=1e-3, atol=0.05)
    assert torch.equal(again.scatter, again.scatter.T)
    few = found.without_scatter()
    assert set(few.tensors()) == {"means", "counts"}
    assert ClassStatistics.from_tensors(few.tensors()).scatter is None


def test_with_a_prior_of_0_the_nearest_class_mean_decides() -> None:
    found, rows, _ = some_statistics(0, 30)
    within = torch.diag(torch.tensor([1.0, 50.0, 0.1, 3.0, 7.0]))
    weight, bias = head(found.means, covariance([found.without_scatter()], within, prior=0))
    nearest = torch.cdist(rows.double(), found.means).argmin(1)
    assert torch.equal((rows @ weight.T + bias).argmax(1), nearest)
    other, _ = head(found.means, covariance([found.without_scatter()], within, prior=30))
    assert not torch.allclose(other / other.norm(), weight / weight.norm(), atol=0.1)
