"""Methods on frozen features: closed forms against all data at once, and the mark they carry."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.ancestors.ancestor import shipped
from rivals.ancestors.feature_network import feature_network
from rivals.ancestors.stream_view import StreamForAncestor
from rivals.baselines.fecam import correlation
from rivals.errors import RivalsError
from rivals.experiment.grid.grid_file import plan
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.learn.method import Method
from rivals.learn.twta import TWTA
from rivals.naming.discriminant import discriminant
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.plain_layers import Power, Resize, Square
from rivals.nn.rival_network import ANCESTOR
from rivals.seeds import Seed
from rivals.streams.stream import streams
from rivals.streams.task import Preprocessing, centred
from rivals.tickets.graph_words import build, describe
from rivals.tickets.ticket import Ticket
from toys import CHANGES, FROZEN, lessons, make, same_bits, shortened, steps_of, teach, ticket_bits

IMAGES = 80  # of a task
Accepted = Callable[..., str]


def tasks(count: int = 3) -> list[Any]:
    return [shortened(lesson.task, IMAGES) for lesson in lessons(count)]


def learned(name: str, order: list[Any] | None = None, **settings: Any) -> Method:
    method = make(name, **settings)
    for task in order or tasks():
        teach(method, task)
    return method


def everything(method: Method) -> tuple[Tensor, Tensor]:
    """Rows (n, d) and labels, counted over all classes, of all tasks at once, in float64."""
    rows, labels, first = [], [], 0
    for task in tasks():
        images = method.known[task.name].preprocessing(task.train.images)
        rows.append(method.rows(images).double())
        labels.append(task.train.labels + first)
        first += len(task.classes)
    return torch.cat(rows), torch.cat(labels)


def scores(method: Method, images: Tensor) -> Tensor:
    """Of all classes, in the order of the tasks as `tasks` gives them."""
    names = [task.name for task in tasks()]
    prepared = method.known[names[0]].preprocessing(images)
    with torch.no_grad():
        return torch.cat([method.logits(prepared, name) for name in names], 1).double()


def new_images() -> Tensor:
    return torch.cat([lesson.test.images[:20] for lesson in lessons(3)])


def centred_rows(values: Tensor) -> Tensor:
    return values - values.mean(1, keepdim=True)


def means_of(rows: Tensor, labels: Tensor) -> Tensor:
    return torch.stack([rows[labels == c].mean(0) for c in range(int(labels.max()) + 1)])


# The network -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 64, 64), (3, 32, 32), (1, 28, 28), (3, 100, 80)])
def test_features_are_those_of_the_ancestor_in_a_model(shape: tuple[int, int, int]) -> None:
    pixels = torch.randint(0, 256, (3, *shape), generator=Seed(0).torch(), dtype=torch.uint8)
    images, side = centred(shape[0])(pixels), 48 if shape[1] < 60 else 64
    found = shipped("tiny")
    network = NetworkPlan(found.network(4), (shape[0], side, side)).rivals(Seed(0))
    found.give_to(network)
    with torch.no_grad():
        resized = F.interpolate(images, (side, side), mode="bilinear", antialias=shape[1] > side)
        wanted = network.learning(False).flow(resized, ANCESTOR).values
        assert torch.allclose(feature_network("tiny", shape).network(images), wanted, atol=1e-5)


def test_a_grey_picture_has_the_features_of_three_equal_channels() -> None:
    grey = torch.rand(2, 1, 48, 48, generator=Seed(1).torch())
    one, three = (feature_network("tiny", (n, 48, 48)).network for n in (1, 3))
    found, wanted = one(grey), three(grey.expand(-1, 3, -1, -1))
    assert torch.allclose(found, wanted, atol=0.01)  # weights have 16 bits, and so has their sum


def test_the_preparation_of_a_stream_does_not_matter() -> None:
    """The ancestor sees all pictures in one way, so scores of tasks compare."""
    plain, other = tasks(1)[0], tasks(1)[0]
    other = replace(other, preprocessing=Preprocessing(16.0, (0.9,), (3.0,)))
    one, two = learned("slda", [plain]), learned("slda", [other])
    assert one.known[plain.name].preprocessing == centred(1, 16.0)
    assert same_bits(ticket_bits(one, plain.name), ticket_bits(two, plain.name))


# Closed forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ncm_names_the_nearest_mean(metric: str) -> None:
    method = learned("ncm", metric=metric)
    means, new = means_of(*everything(method)), method.rows(centred(1, 16.0)(new_images())).double()
    if metric == "cosine":
        near = F.cosine_similarity(new.unsqueeze(1), means.unsqueeze(0), dim=2)
        found = scores(method, new_images()) / new.norm(dim=1, keepdim=True)
        assert torch.allclose(found, near, atol=1e-5)
    else:
        near = -0.5 * torch.cdist(new, means).square()
        assert torch.allclose(
            centred_rows(scores(method, new_images())), centred_rows(near), atol=1e-3
        )


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_streaming_lda_is_lda_of_all_pictures_at_once(batch_size: int) -> None:
    method = learned("slda", batch_size=batch_size, shrinkage=0.01)
    rows, labels = everything(method)
    means = means_of(rows, labels)
    apart = rows - means[labels]
    covariance = 0.99 * apart.T @ apart / len(rows) + 0.01 * torch.eye(rows.shape[1])
    density = torch.distributions.MultivariateNormal(means, covariance)
    new = method.rows(centred(1, 16.0)(new_images())).double()
    wanted = density.log_prob(new.unsqueeze(1))  # but for a constant of each picture
    found = scores(method, new_images())
    assert torch.allclose(centred_rows(found), centred_rows(wanted), rtol=1e-3, atol=1e-2)


def test_ranpac_is_ridge_regression_on_all_pictures_at_once() -> None:
    method = learned("ranpac", ridge=50.0)
    rows, labels = everything(method)
    targets = F.one_hot(labels).double()
    penalised = torch.cat([rows, 50.0**0.5 * torch.eye(rows.shape[1], dtype=torch.float64)])
    wanted = torch.cat([targets, torch.zeros(rows.shape[1], targets.shape[1]).double()])
    weight = torch.linalg.lstsq(penalised, wanted).solution
    new = method.rows(centred(1, 16.0)(new_images())).double()
    assert torch.allclose(scores(method, new_images()), new @ weight, atol=1e-4)


def test_ranpac_chooses_the_penalty_on_pictures_that_it_was_not_fitted_to() -> None:
    """Of all powers of ten none is better on the last fifth that the method saw."""
    method, task = make("ranpac", batch_size=IMAGES), tasks(1)[0]
    method.start(task)
    assert method.footprint()["features"] == 0
    seen: list[tuple[Tensor, Tensor]] = []
    remember = method.remember

    def watch(features: Tensor, labels: Tensor) -> None:
        seen.append((method.transform(features).double(), labels))
        remember(features, labels)

    method.remember = watch
    steps_of(method, task)
    assert method.footprint()["features"] > 0
    method.finish(task)
    assert method.footprint()["features"] == 0, "features are kept only while a task is learned"
    (rows, labels), cut = seen[0], int(0.8 * IMAGES)
    targets, same = F.one_hot(labels).double(), torch.eye(rows.shape[1], dtype=torch.float64)
    errors = {}
    for exponent in range(-8, 9):
        penalised = rows[:cut].T @ rows[:cut] + 10.0**exponent * same
        weight = torch.linalg.solve(penalised, rows[:cut].T @ targets[:cut])
        errors[10.0**exponent] = float((rows[cut:] @ weight - targets[cut:]).square().mean())
    assert errors[method.ridge] == pytest.approx(min(errors.values()), rel=1e-6)
    assert method.task_facts(task.name) == {"ridge": method.ridge}


def test_fecam_is_the_distance_in_the_correlation_of_each_class() -> None:
    method = learned("fecam", shrinkage=2.0, off_diagonal=0.5)
    rows, labels = everything(method)
    new, wanted = method.rows(centred(1, 16.0)(new_images())).double(), []
    for number in range(int(labels.max()) + 1):
        own = rows[labels == number]
        covariance = own.T.cov()
        width = len(covariance)
        off = (covariance.sum() - covariance.trace()) / (width * width - width)
        covariance += 0.5 * off + (2 * covariance.trace() / width - 0.5 * off) * torch.eye(width)
        deviation = covariance.diagonal().sqrt()
        inverse = torch.linalg.inv(covariance / torch.outer(deviation, deviation))
        apart = new - own.mean(0)
        wanted.append(-0.5 * (apart @ inverse * apart).sum(1))
    found = scores(method, new_images())
    assert torch.allclose(found, torch.stack(wanted, 1), rtol=1e-3, atol=1e-3)


def test_fecam_without_correlations_is_the_nearest_mean() -> None:
    fecam = learned("fecam", shrinkage=1e4, off_diagonal=0.0, power=1.0)
    ncm = learned("ncm", metric="euclidean")
    one, other = (centred_rows(scores(method, new_images())) for method in (fecam, ncm))
    assert torch.allclose(one, other, rtol=0.01, atol=0.05)


def test_a_correlation_has_ones_on_its_diagonal_even_without_variance() -> None:
    found = correlation(torch.zeros(2, 3, 3).double(), 1.0, 1.0)
    assert torch.allclose(found, torch.eye(3).double().expand(2, 3, 3))


def test_the_square_root_comes_before_everything() -> None:
    method, plain = learned("ncm", power=0.5), learned("ncm")
    assert torch.allclose(everything(method)[0], everything(plain)[0].sqrt(), atol=1e-6)


@pytest.mark.parametrize("name", FROZEN)
def test_the_order_of_tasks_does_not_change_the_classifier(name: str) -> None:
    fixed = {"ridge": 10.0} if name == "ranpac" else {}
    one, other = learned(name, tasks(), **fixed), learned(name, tasks()[::-1], **fixed)
    assert torch.allclose(scores(one, new_images()), scores(other, new_images()), 1e-3, 1e-2)


@pytest.mark.parametrize("name", FROZEN)
def test_one_classifier_answers_with_the_task_known_and_unknown(name: str) -> None:
    method = learned(name)
    answer, every = method.predict(new_images(), None), scores(method, new_images())
    sizes = [len(task.classes) for task in tasks()]
    firsts = torch.tensor([sum(sizes[:number]) for number in range(len(sizes))])
    assert torch.equal(firsts[answer.task] + answer.label, every.argmax(1))
    own = method.predict(new_images(), tasks()[1].name)
    assert torch.equal(own.label, every[:, sizes[0] : sizes[0] + sizes[1]].argmax(1))


@pytest.mark.parametrize("name", FROZEN)
def test_a_class_without_pictures_is_never_the_answer(name: str) -> None:
    whole = tasks(1)[0]
    only = replace(
        whole, train=whole.train.subset(torch.nonzero(whole.train.labels == 1).flatten())
    )
    method = learned(name, [only])
    assert (method.predict(new_images(), only.name).label == 1).all()


# What stays, and what is said of it --------------------------------------------------------------


@pytest.mark.parametrize("name", FROZEN)
def test_what_is_loaded_is_a_copy(name: str) -> None:
    first, second = tasks(2)
    method = learned(name, [first])
    before = {key: part.tensors for key, part in method.state().items()}
    kept = {(key, k): t.clone() for key, tensors in before.items() for k, t in tensors.items()}
    other = make(name)
    other.load(method.state())
    teach(other, second)
    for (key, k), tensor in kept.items():
        assert torch.equal(method.state()[key].tensors[k], tensor)


def test_a_state_of_another_ancestor_is_refused() -> None:
    method = learned("ncm", tasks(1))
    with pytest.raises(RivalsError, match=r"learned on the ancestor 'tiny' .* but here is 'small'"):
        make("ncm", ancestor="small").load(method.state())


@pytest.mark.parametrize(("name", "settings", "says"), [
    ("ncm", {"ancestor": "large"}, "no ancestor named 'large'; known are small, timm:NAME, tiny"),
    ("slda", {"shrinkage": 0}, "shrinkage is 0, but must be more than 0"),
    ("fecam", {"off_diagonal": 2.0}, "off_diagonal is 2, but must be at most shrinkage (1)"),
    ("fecam", {"power": 0}, "power is 0, but must be more than 0"),
])  # fmt: skip
def test_wrong_settings_are_refused(name: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(RivalsError) as refused:
        make(name, **settings)
    assert says in str(refused.value)


def test_layers_of_their_own_are_kept_in_a_ticket(tmp_path: Path) -> None:
    task = tasks(1)[0]
    method = learned("fecam", [task])
    known = method.known[task.name]
    ticket = Ticket(
        method.ticket(task.name), task.name, task.classes, known.preprocessing, (1, 8, 8)
    )
    ticket.save(tmp_path / "ticket")
    again = Ticket.load(tmp_path / "ticket")
    assert torch.equal(again(task.train.images), ticket(task.train.images))
    kinds = [type(layer) for layer in again.network.children()]
    assert [kinds.count(kind) for kind in (Resize, Power, Square)] == [1, 1, 1]


@pytest.mark.parametrize(("word", "key", "value"), [
    ("resize", "side", 0), ("resize", "side", 10**9), ("resize", "side", "48"),
    ("power", "exponent", -1.0), ("power", "exponent", 1e300), ("power", "exponent", None),
])  # fmt: skip
def test_impossible_layers_of_a_ticket_are_refused(word: str, key: str, value: Any) -> None:
    network = learned("fecam", tasks(1)).ticket(tasks(1)[0].name)
    nodes, tensors = describe(network), network.state_dict()
    assert build(nodes, tensors, (1, 8, 8), 2)
    next(node for node in nodes if node["op"] == word)[key] = value
    with pytest.raises((ValueError, TypeError)):
        build(nodes, tensors, (1, 8, 8), 2)


def test_results_of_a_run_name_the_ancestor(tmp_path: Path, accepted: Accepted) -> None:
    changes = [*CHANGES, "ancestor=tiny"]
    run = prepare(resolve("digits", "slda", overrides=parse_overrides(changes)), tmp_path / "run")
    found = run.go().content
    assert found["ancestor"] == run.method.pretrained
    assert found["ancestor"]["name"] == "tiny"
    assert found["summary"]["bytes"]["ancestor"] == 4 * sum(
        p.numel() for p in run.method.network.parameters()
    )
    assert "slda, pretrained (tiny)" in accepted("info", tmp_path / "run")
    assert "every ticket equals what is cut out" in accepted("check", tmp_path / "run")


def test_tickets_of_a_benchmark_may_start_from_an_ancestor(
    tmp_path: Path, accepted: Accepted
) -> None:
    changes = ["ancestor=tiny", "tasks=2", "epochs=2", "batch_size=160"]
    run = prepare(resolve("digits", "twta", overrides=parse_overrides(changes)), tmp_path / "run")
    assert run.stream.input_shape == (1, 48, 48)
    method = run.method
    assert isinstance(method, TWTA)
    network, looks = method.network, torch.zeros(1, 1, 48, 48)
    network.learning(False)
    before = network.shared_features(looks)
    found = run.go().content
    network.learning(False)
    assert torch.equal(network.shared_features(looks), before)  # the ancestor is protected
    assert found["ancestor"] == {"name": "tiny", "sha256": shipped("tiny").sha256}
    assert found["summary"]["bytes"]["ancestor"] > 200_000
    assert found["summary"]["accuracy"]["task_known"] > 80
    assert "twta, pretrained (tiny)" in accepted("info", tmp_path / "run")
    assert "every ticket equals what is cut out" in accepted("check", tmp_path / "run")


@torch.no_grad()
def test_a_new_head_on_an_ancestor_starts_as_the_closed_form() -> None:
    changes = ["ancestor=tiny", "tasks=1"]
    settings = resolve("digits", "twta", overrides=parse_overrides(changes))
    stream = StreamForAncestor(streams["digits"].build(settings.stream, Seed(0)))
    plan = NetworkPlan(settings.network, stream.input_shape)
    method, task = TWTA(plan, settings.training, Seed(0)), stream[0].task
    method.start(task)
    method.network.learning(False)
    rows = method.network.shared_features(task.preprocessing(task.train.images))
    weight, bias = discriminant(rows, task.train.labels, method.network.within)
    right = (rows @ weight.T + bias).argmax(1) == task.train.labels
    started = method.network.heads[task.name]
    assert torch.allclose(started.weight.flatten(1), 0.15 * weight, atol=1e-4)
    assert float(right.float().mean()) > 0.85


@pytest.mark.parametrize("name", ["ncm", "icarl"])
def test_a_file_of_all_tasks_is_refused_where_all_classes_compete(name: str) -> None:
    with pytest.raises(RivalsError, match="export one task with the argument task"):
        learned(name, tasks(2)).predictor()


def test_a_comparison_marks_what_is_pretrained(tmp_path: Path, accepted: Accepted) -> None:
    settings = parse_overrides(CHANGES)
    for run in plan("digits", ["finetune", "ncm"], 0, "default", settings):
        prepare(run.settings(), tmp_path / run.folder).go()  # so that nothing is left to run
    line = ["compare", "--benchmarks", "digits", "--methods", "finetune,ncm", "--out", tmp_path]
    for change in CHANGES:
        line += ["--set", change]
    printed = accepted(*line)
    assert "* pretrained: starts from a network that was trained before (small)" in printed
    assert "ncm (pretrained)" in " ".join(printed.split())
    facts = json.loads(accepted(*line, "--json"))
    assert [run["ancestor"] for run in facts["runs"]] == ["", "small"]
    assert [row["ancestor"] for row in facts["variants"]] == ["", "small"]
