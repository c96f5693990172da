"""Ancestors that users make of a model, a run or a ticket, and models that start from them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

import rivals
from rivals.ancestors.ancestor import recoloured
from rivals.ancestors.making import features
from rivals.ancestors.ticket_weights import recognise
from rivals.cli.main import main
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.experiment.stored_run import StoredRun
from rivals.io.files import digest
from rivals.learn.twta import TWTA
from rivals.model import ancestor_file, learning, limits
from rivals.model.checking import check
from rivals.model.folder import ModelFolder
from rivals.model.manifest import NAME, checksum
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from rivals.tickets.parallel import ParallelTickets
from teaching import folder, teach

Refused = Callable[..., str]
Accepted = Callable[..., str]
Pictures = tuple[NDArray[np.uint8], list[str]]
SIDE = 16


def patterns(names: str, count: int, seed: int = 0) -> Pictures:
    """Very noisy pictures; a letter says of what: stripes, a grid, a half."""
    chance = np.random.default_rng(seed)
    row, column = np.mgrid[:SIDE, :SIDE]
    shapes = {
        "a": row // 2 % 2, "d": column // 2 % 2, "g": (row + column) % 2, "h": row < SIDE // 2,
        "x": (row + column) // 2 % 2, "y": (row - column) // 2 % 2, "v": column < SIDE // 2,
    }  # fmt: skip
    labels = [names[number % len(names)] for number in range(count)]
    images = chance.integers(0, 150, (count, SIDE, SIDE, 3))
    for image, label in zip(images, labels, strict=True):
        image += (20 * np.roll(shapes[label], chance.integers(0, 4), 0))[..., None]
    return images.astype(np.uint8), labels


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tasks, and an ancestor of its last one. Only to be read."""
    place = tmp_path_factory.mktemp("learned")
    model = rivals.Model(place / "model")
    model.learn(patterns("ah", 60), "first", size=SIDE, epochs=6, ancestor="none")
    model.learn(patterns("adghx", 400), "second", epochs=20)
    rivals.make_ancestor(place / "model", place / "known")
    return place


@pytest.fixture
def known(learned: Path, tmp_path: Path) -> Path:
    """An ancestor to be changed."""
    shutil.copytree(learned / "known", tmp_path / "known")
    return tmp_path / "known"


def pixels(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.moveaxis(images, 3, 1).copy())


def seen(model: Path, images: Tensor) -> Tensor:
    """The features of a model's ancestor."""
    opened = ModelFolder.open(model)
    return features(opened.method.network, opened.preparation(images))


def tree(place: Path) -> set[str]:
    return {path.relative_to(place).as_posix() for path in place.rglob("*")}


# Making ------------------------------------------------------------------------------------------


def test_the_features_of_a_model_are_the_ancestors_bit_for_bit(
    learned: Path, tmp_path: Path
) -> None:
    model = rivals.Model(tmp_path / "m")
    result = model.learn(patterns("xy", 30), "new", ancestor=learned / "known")
    assert result.facts.steps == 0  # by the ancestor's units alone
    images = pixels(patterns("adghxyv", 21, seed=5)[0])
    source = ModelFolder.open(learned / "model")
    prepared = source.preparation(images)
    with torch.no_grad():
        wanted = source.method.network.learning(False).flow(prepared, "second").values
    assert torch.equal(seen(tmp_path / "m", images), wanted)
    assert ModelFolder.open(tmp_path / "m").description.input_shape == (3, SIDE, SIDE)


def test_few_pictures_are_named_better_than_from_nothing(learned: Path, tmp_path: Path) -> None:
    accuracy = {}
    for name, ancestor in (("none", "none"), ("own", learned / "known")):
        model = rivals.Model(tmp_path / name)
        model.learn(patterns("xyv", 9), "new", ancestor=ancestor, size=SIDE)
        accuracy[name] = model.test(patterns("xyv", 120, seed=1)).accuracy
    assert accuracy["own"] > accuracy["none"] + 10


def test_the_card_says_what_it_is(learned: Path, tmp_path: Path) -> None:
    card = json.loads((learned / "known" / "ancestor.json").read_text())
    found = ancestor_file.read(learned / "known")
    data = (learned / "known" / "ancestor.safetensors").read_bytes()
    assert card["sha256"] == digest(data) == found.sha256
    weights = sum(t.numel() for name, t in found.tensors.items() if name.endswith(".weight"))
    assert card["weights"] == weights
    assert (card["name"], card["task"], card["architecture"]) == ("known", "second", "conv-small")
    assert card["widths"] == [width // 8 for width in limits.NETWORKS["conv-small"]]
    assert "400 pictures" not in card["trained_on"]  # those held out are not counted
    assert "task 'second' (a, d, g, h, x), after first" in card["trained_on"]
    assert card["accuracy"] == rivals.Model(learned / "model").tasks[1].accuracy
    assert card["command"] == "rivals ancestor make model --task second --out known"
    first = rivals.make_ancestor(learned / "model", tmp_path / "other", "first")
    assert first.card["task"] == "first"
    assert "after" not in first.card["trained_on"]


RUN = ["tasks=2", "epochs=4", "architecture=conv-small", "widths=32-64", "units=4"]


def run_of(place: Path, method: str, changes: list[str]) -> Path:
    prepare(resolve("digits", method=method, overrides=parse_overrides(changes)), place).go()
    return place


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("twta", RUN),
        ("twta", [*RUN[:2], "architecture=resnet-small", "widths=16-32", "units=4"]),
        ("twta", [*RUN, "norm=none", "lr=0.02"]),
        ("twta", ["tasks=1", "epochs=1", "architecture=lenet"]),
        ("random-ticket", ["tasks=1", "epochs=1", "architecture=resnet-small"]),
        ("finetune", RUN),
    ],
    ids=["conv", "resnet", "bias only", "own widths", "own stages", "dense"],
)
def test_a_run_becomes_an_ancestor(tmp_path: Path, method: str, changes: list[str]) -> None:
    run = StoredRun(run_of(tmp_path / "run", method, changes))
    made = rivals.make_ancestor(tmp_path / "run", tmp_path / "known")
    task = run.tasks[-1]
    images = run.item(task).test.images
    ticket = run.ticket(task)
    model = rivals.Model(tmp_path / "m")
    brighter = (images * 15).movedim(1, 3).numpy()  # digits have 16 levels, pictures 256
    labels = [f"digit {label}" for label in run.item(task).test.labels.tolist()]
    model.learn((brighter[:40], labels[:40]), "new", ancestor=made.folder, grey=True, new=0)
    opened = ModelFolder.open(tmp_path / "m")
    found = features(opened.method.network, ticket.preprocessing(images))
    wanted = ParallelTickets([ticket.network], [ticket.preprocessing])(images)[0].features
    assert float((found - wanted).norm() / wanted.norm()) < 2e-3
    exact = run.method()
    if isinstance(exact, TWTA):
        with torch.no_grad():
            flow = exact.network.learning(False).flow(ticket.preprocessing(images), task)
        assert torch.equal(found, flow.values)
    assert opened.preparation == run.item(task).task.preprocessing.__class__(
        255.0, ticket.preprocessing.mean, ticket.preprocessing.std
    )
    assert "training pictures of" in made.card["covariance"]
    assert method in made.card["trained_on"]


def test_the_covariance_is_that_of_the_pictures_of_the_run(tmp_path: Path) -> None:
    run = StoredRun(run_of(tmp_path / "run", "twta", RUN))
    made = ancestor_file.read(rivals.make_ancestor(tmp_path / "run", tmp_path / "known").folder)
    network = NetworkPlan(made.network(2), (1, 8, 8)).rivals(Seed(0))
    made.give_to(network)
    rows, classes = [], []
    for number, name in enumerate(run.tasks):
        task = run.item(name).task
        rows.append(features(network, run.ticket("5-6-7-8-9").preprocessing(task.train.images)))
        classes.append(task.train.labels + 10 * number)
    whole, labels = torch.cat(rows).double(), torch.cat(classes)
    apart = whole - torch.stack([whole[labels == label].mean(0) for label in labels])
    wanted = apart.T @ apart / (len(whole) - 10)
    wider = 0.9 * wanted + 0.1 * wanted.diagonal().mean() * torch.eye(len(wanted))
    assert torch.allclose(made.within.double(), wider, rtol=1e-3, atol=1e-5)


def test_a_run_without_its_pictures(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "run")

    def missing(_: StoredRun) -> None:
        raise rivals.RivalsError("there are no pictures here")

    monkeypatch.setattr(StoredRun, "stream", property(missing))
    made = rivals.make_ancestor(tmp_path / "run", tmp_path / "known")
    assert "there are no pictures here" in made.card["covariance"]
    within = ancestor_file.read(made.folder).within
    assert torch.equal(within, within[0, 0] * torch.eye(len(within)))


def test_a_ticket_becomes_an_ancestor(learned: Path, tmp_path: Path) -> None:
    ticket = rivals.Model(learned / "model").ticket("second")
    ticket.save(tmp_path / "ticket")
    made = rivals.make_ancestor(tmp_path / "ticket", tmp_path / "known")
    same = rivals.make_ancestor(learned / "model", tmp_path / "whole")
    facts = ("architecture", "widths", "weights", "task", "accuracy", "input_shape")
    assert [made.card[name] for name in facts] == [same.card[name] for name in facts]
    assert made.card["covariance"] == "unknown: the same in all directions"
    model = rivals.Model(tmp_path / "m")
    model.learn(patterns("xv", 30), "new", ancestor=tmp_path / "known")
    images = pixels(patterns("adghxyv", 21, seed=5)[0])
    wanted = ParallelTickets([ticket.network], [ticket.preprocessing])(images)[0].features
    found = seen(tmp_path / "m", images)
    assert float((found - wanted).norm() / wanted.norm()) < 2e-3
    assert model.test(patterns("xv", 60, seed=1)).accuracy > 80


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("conv-small", (3, 4, 5, 6)), ("conv-small", (3,)), ("lenet", (2, 3, 9)),
        ("mlp", (7,)), ("mlp", (4, 4, 4)), ("resnet-small", (3, 3, 6)), ("resnet-small", (2,)),
        ("conv-residual", (2, 3, 4, 5)), ("conv-residual", (2, 3, 4, 3, 5, 6, 4, 6, 3, 7)),
    ],
)  # fmt: skip
def test_networks_are_recognised_by_their_tickets(name: str, widths: tuple[int, ...]) -> None:
    settings = NetworkSettings(architecture=name, widths=widths, units=1)
    network = NetworkPlan(settings, (3, 32, 32)).dense(Seed(0))
    network.add("task", 4)
    assert recognise(network.cut("task"), (3, 32, 32), limits.NETWORKS) == settings
    others = [other for other in limits.NETWORKS if other != name]
    assert recognise(network.cut("task"), (3, 32, 32), others) is None


def test_an_ancestor_of_an_ancestor(learned: Path, tmp_path: Path, accepted: Accepted) -> None:
    rivals.Model(tmp_path / "m").learn(patterns("xy", 30), "new", ancestor=learned / "known", new=0)
    made = rivals.make_ancestor(tmp_path / "m", tmp_path / "grandchild")
    before = ancestor_file.read(learned / "known")
    assert made.card["began_with"] == {"name": "known", "sha256": before.sha256}
    assert f"from the ancestor 'known': {before.card['trained_on']}" in made.card["trained_on"]
    shipped = rivals.Model(tmp_path / "s")
    shipped.learn(patterns("xy", 30), "new", ancestor="tiny", new=0)
    card = rivals.make_ancestor(tmp_path / "s", tmp_path / "third").card
    assert "non-commercial" in card["terms"]
    rivals.Model(tmp_path / "t").learn(patterns("xy", 30), "new", ancestor=tmp_path / "third")
    assert "non-commercial" in accepted("info", tmp_path / "t")


def test_colours_and_grey(tmp_path: Path) -> None:
    """Of a coloured picture an ancestor of grey pictures sees the luminance, and back."""
    teach(folder(tmp_path / "a", (0, 1), 10), tmp_path / "grey", epochs=2)
    made = rivals.make_ancestor(tmp_path / "grey", tmp_path / "known")
    images, labels = patterns("ad", 20)
    small = np.ascontiguousarray(images[:, :8, :8])
    coloured = rivals.Model(tmp_path / "m")
    coloured.learn((small, labels), "new", ancestor=made.folder)
    assert coloured.opened().description.input_shape == (3, 8, 8)
    plain = rivals.Model(tmp_path / "g")
    plain.learn((small, labels), "new", ancestor=made.folder, grey=True)
    luminance = (small @ np.array([0.299, 0.587, 0.114])).round().astype(np.uint8)[:, None]
    one, other = seen(tmp_path / "m", pixels(small)), seen(tmp_path / "g", torch.tensor(luminance))
    assert float((one - other).norm() / other.norm()) < 0.02
    weight = torch.randn(4, 3 * 5, 2)
    assert torch.equal(recoloured(weight, 3, 3), weight)
    assert torch.allclose(recoloured(weight, 3, 1), weight.view(4, 3, 5, 2).sum(1))
    with pytest.raises(rivals.RivalsError, match="'known' needs exactly 8 pixels a side"):
        rivals.Model(tmp_path / "x").learn((images, labels), "n", ancestor=made.folder, size=16)


def test_tasks_that_are_named_by_their_pixels(
    tmp_path: Path, learned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no network; the last task that has one is taken."""
    shutil.copytree(learned / "model", tmp_path / "m")
    model = rivals.Model(tmp_path / "m")
    monkeypatch.setattr(learning, "standard_error", lambda *_: -1000.0)  # pixels are preferred
    model.learn(patterns("hv", 20), "third")
    assert model.opened().method.network.is_direct("third")
    assert rivals.make_ancestor(tmp_path / "m", tmp_path / "known").card["task"] == "second"
    with pytest.raises(rivals.RivalsError, match="named by its pixels alone"):
        rivals.make_ancestor(tmp_path / "m", tmp_path / "known", "third")


def test_sources_that_cannot_be_ancestors(
    tmp_path: Path, learned: Path, finished: Path, refused: Refused, accepted: Accepted
) -> None:
    def make(source: Path, *words: str) -> str:
        return refused("ancestor", "make", source, "--out", tmp_path / "out", *words)

    assert "There is no folder" in make(tmp_path / "nothing")
    assert "is an ancestor already" in make(learned / "known")
    assert "There is no task named 'third'" in make(learned / "model", "--task", "third")
    assert "has no task named 'x'" in make(finished, "--task", "x")
    ticket = rivals.Model(learned / "model").ticket("first")
    ticket.save(tmp_path / "ticket")
    assert "not of 'second'" in make(tmp_path / "ticket", "--task", "second")
    wide = run_of(tmp_path / "wide", "twta", ["tasks=1", "epochs=1", "architecture=resnet18-table"])
    assert "has the network 'resnet18-table', but models have conv-residual, conv-small" in make(
        wide
    )
    linear = run_of(tmp_path / "linear", "twta", [*RUN[1:], "tasks=1", "activation=linear"])
    assert "has another network than a model may have" in make(linear)
    folded = next((wide / "tickets").iterdir())
    assert "has another network than a model may have" in make(folded)
    assert not (tmp_path / "out").exists()
    accepted("ancestor", "make", learned / "model", "--out", tmp_path / "out", "--task", "first")


def test_where_it_goes(tmp_path: Path, learned: Path, refused: Refused, accepted: Accepted) -> None:
    source = learned / "model"
    for name in ("tiny", "none"):
        assert "name of another" in refused("ancestor", "make", source, "--out", tmp_path / name)
    (tmp_path / "file").write_text("mine")
    assert "is a file" in refused("ancestor", "make", source, "--out", tmp_path / "file")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    assert "something else" in refused("ancestor", "make", source, "--out", tmp_path / "full")
    assert tree(tmp_path / "full") == {"mine.txt"}
    out = tmp_path / "a" / "known"
    told = json.loads(accepted("ancestor", "make", source, "--out", out, "--json"))
    assert told["card"] == json.loads((out / "ancestor.json").read_text())
    assert told["bytes"] == (out / "ancestor.safetensors").stat().st_size
    accepted("ancestor", "make", source, "--out", out, "--task", "first")
    assert json.loads((out / "ancestor.json").read_text())["task"] == "first"
    assert tree(out) == {"ancestor.json", "ancestor.safetensors"}


# Models ------------------------------------------------------------------------------------------


def test_a_model_needs_the_folder_no_longer(
    known: Path, tmp_path: Path, accepted: Accepted, refused: Refused
) -> None:
    images = list(patterns("xyv", 9, seed=3)[0])
    model = rivals.Model(tmp_path / "m")
    model.learn(patterns("xyv", 30), "one", ancestor=str(known))
    before = [answer.top(3) for answer in model.predict(images, task="one")]
    shutil.rmtree(known)
    shutil.move(tmp_path / "m", tmp_path / "elsewhere")
    moved = rivals.Model(tmp_path / "elsewhere")
    assert [answer.top(3) for answer in moved.predict(images, task="one")] == before
    moved.learn(patterns("ad", 30), "two")
    moved.learn(patterns("gh", 40), "three", new=1, epochs=2)
    assert [answer.top(3) for answer in moved.predict(images, task="one")] == before
    moved.drop("two")
    moved.learn(patterns("gh", 40, seed=2), "three", again=True, epochs=1)
    assert [answer.top(3) for answer in moved.predict(images, task="one")] == before
    assert "is whole" in accepted("check", moved.path)
    assert "began with the ancestor known" in " ".join(accepted("info", moved.path).split())
    assert "task 'second'" in " ".join(accepted("info", moved.path).split())
    assert check(moved.path).whole
    for task in ("one", "three"):
        moved.drop(task)
    assert len(list((moved.path / "tasks").iterdir())) == 1  # the ancestor
    moved.learn(patterns("xyv", 30), "one")
    assert [answer.top(3) for answer in moved.predict(images, task="one")] == before
    words = ("learn", folder(tmp_path / "a", (0, 1), 4), "--model", moved.path)
    assert "There is no folder" in refused(*words, "--ancestor", known)


def test_an_export_carries_what_it_needs(known: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from rivals.edge.artefact import load

    model = rivals.Model(tmp_path / "m")
    model.learn(patterns("xyv", 30), "one", ancestor=known)
    model.export("one", tmp_path / "one.onnx")
    shutil.rmtree(known)
    shutil.rmtree(tmp_path / "m" / "tasks")
    images = patterns("xyv", 12, seed=4)
    found = load(tmp_path / "one.onnx").answers(np.moveaxis(images[0], 3, 1))
    assert np.mean([a.label == label for a, label in zip(found, images[1], strict=True)]) > 0.6


def test_shipped_ancestors_are_still_stored_nowhere(tmp_path: Path) -> None:
    rivals.Model(tmp_path / "m").learn(patterns("xy", 20), "one", ancestor="tiny")
    described = json.loads((tmp_path / "m" / NAME).read_text())
    assert set(described["ancestor"]) == {"name", "sha256"}
    assert len(list((tmp_path / "m" / "tasks").iterdir())) == 1


def test_options_of_a_model_that_is_there(
    learned: Path, known: Path, tmp_path: Path, refused: Refused
) -> None:
    model = rivals.Model(tmp_path / "m")
    model.learn(patterns("xy", 20), "one", ancestor=known)
    model.learn(patterns("ad", 20), "two", ancestor=learned / "known")  # the same one
    other = rivals.make_ancestor(learned / "model", tmp_path / "other", "first").folder
    for name in ("none", "tiny", other):
        with pytest.raises(rivals.RivalsError, match="was made with ancestor known"):
            model.learn(patterns("gh", 20), "three", ancestor=name)
    with pytest.raises(rivals.RivalsError, match="do not go together"):
        rivals.Model(tmp_path / "n").learn(patterns("gh", 20), "x", ancestor=known, network="mlp")


def test_the_page_starts_from_it(
    known: Path, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rivals.web import server

    words = ("serve", "--model", tmp_path / "m", "--ancestor")
    assert "There is no folder" in refused(*words, tmp_path / "a" / "b")
    given: list[str | None] = []
    monkeypatch.setattr(server, "serve", lambda *some: given.append(some[-1]))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["serve", "--model", "m", "--ancestor", "known"])
    assert given == [str(known)]  # tasks may be learned by processes with another folder
    damage(known, lambda card: card.update(sha256="0" * 64))
    assert "was altered" in refused(*words, known)


# Files from others -------------------------------------------------------------------------------


def damage(place: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the card of an ancestor, with a checksum to match."""
    card = json.loads((place / "ancestor.json").read_text())
    change(card)
    card["card_sha256"] = ancestor_file.card_checksum(card)
    (place / "ancestor.json").write_text(json.dumps(card))


def forge(place: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change the tensors of an ancestor, with a checksum to match."""
    tensors = safetensors.torch.load_file(place / "ancestor.safetensors")
    change(tensors)
    data = safetensors.torch.save({name: t.contiguous() for name, t in tensors.items()})
    (place / "ancestor.safetensors").write_bytes(data)
    damage(place, lambda card: card.update(sha256=digest(data)))


CARDS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "newer": (lambda c: c.update(format=2), "has format 2, and this version reads 1"),
    "no format": (lambda c: c.update(format="x"), "has format x"),
    "checksum": (lambda c: c.update(sha256="0" * 64), "was altered"),
    "no checksum": (lambda c: c.pop("sha256"), "is not as it should be at sha256"),
    "network": (lambda c: c.update(architecture="alexnet"), "not as it should be at architecture"),
    "code": (lambda c: c.update(architecture="os:system"), "not as it should be at architecture"),
    "other network": (lambda c: c.update(architecture="mlp"), "does not have the shape"),
    "widths": (lambda c: c.update(widths=[16, 32, 65]), "does not have the shape"),
    "more widths": (lambda c: c["widths"].append(8), "does not have the shape"),
    "huge": (lambda c: c.update(widths=[1024] * 8), "weights for a task"),
    "too wide": (lambda c: c.update(widths=[16, 32, 4096]), "not as it should be at widths/2"),
    "no widths": (lambda c: c.update(widths=[]), "not as it should be at widths"),
    "shape": (lambda c: c.update(input_shape=[3, 4096, 4096]), "not as it should be at input_sh"),
    "channels": (lambda c: c.update(input_shape=[2, 16, 16]), "not as it should be at input_shape"),
    "name": (lambda c: c.update(name="a\x1b[31m"), "is not as it should be at name"),
}


@pytest.mark.parametrize("kind", CARDS)
def test_wrong_cards(kind: str, known: Path, tmp_path: Path, refused: Refused) -> None:
    change, found = CARDS[kind]
    damage(known, change)
    words = ("learn", folder(tmp_path / "a", (0, 1), 4), "--model", tmp_path / "m")
    assert found in refused(*words, "--ancestor", known)
    assert not (tmp_path / "m").exists()
    assert not check(known).whole


TENSORS: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "not a number": (lambda t: t["layer0.weight"].view(-1)[0].fill_(float("nan")), "not finite"),
    "infinite": (lambda t: t["within"][0].fill_(float("inf")), "not finite"),
    "missing": (lambda t: t.pop("layer1.norm.var"), "the shape that ancestor.json says: layer1"),
    "too many": (lambda t: t.update(more=torch.ones(1)), "the shape that ancestor.json says: more"),
    "norm": (lambda t: t.update({"layer1.norm.mean": torch.ones(3)}), "layer1.norm.mean"),
    "flat": (lambda t: t.update({"layer0.weight": torch.ones(16, 27)}), "layer0.weight"),
    "within": (
        lambda t: t.update(within=torch.eye(3)),
        "the shape that ancestor.json says: within",
    ),
    "no within": (lambda t: t.pop("within"), "has no within"),
    "negative": (lambda t: t["layer2.norm.var"][0].fill_(-1), "a negative variance"),
    "not symmetric": (
        lambda t: t.update(within=torch.eye(64) + torch.eye(64, 64).roll(1, 0)),
        "a covariance that is none",
    ),
    "huge within": (lambda t: t.update(within=torch.eye(1500)), "of an impossible shape"),
    "odd within": (lambda t: t.update(within=t["within"][1:]), "of an impossible shape"),
    "not positive": (lambda t: t["within"].neg_(), "a covariance that is none"),
    "zero": (lambda t: t["within"].zero_(), "a covariance that is none"),
    "type": (lambda t: t.update({"layer0.weight": t["layer0.weight"].long()}), "of the type I64"),
    "no input": (lambda t: t.pop("input.mean"), "has no input.mean"),
    "input": (lambda t: t.update({"input.std": torch.ones(2).double()}), "for each channel"),
    "channels": (lambda t: t.update({"input.std": torch.ones(1).double()}), "says: input.std"),
    "preparation": (lambda t: t["input.std"].zero_(), "a scale or a deviation"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_wrong_tensors(kind: str, known: Path, tmp_path: Path, refused: Refused) -> None:
    change, found = TENSORS[kind]
    forge(known, change)
    words = ("learn", folder(tmp_path / "a", (0, 1), 4), "--model", tmp_path / "m")
    assert found in refused(*words, "--ancestor", known)
    assert not (tmp_path / "m").exists()


def test_damaged_folders(known: Path, tmp_path: Path, refused: Refused) -> None:
    pictures = folder(tmp_path / "a", (0, 1), 4)

    def learn(place: Path | str) -> str:
        return refused("learn", pictures, "--model", tmp_path / "m", "--ancestor", place)

    assert "There is no folder" in learn(tmp_path / "nothing")
    assert "holds no ancestor" in learn(tmp_path)
    data = (known / "ancestor.safetensors").read_bytes()
    for wrong in (data[:-1], data[: len(data) // 2], b"", data[:200] + b"\0" + data[201:]):
        (known / "ancestor.safetensors").write_bytes(wrong)
        assert "was altered" in learn(known)
    card = json.loads((known / "ancestor.json").read_text())
    (known / "ancestor.json").write_text(json.dumps({**card, "trained_on": "the whole world"}))
    assert "was altered: ancestor.json" in learn(known)
    (known / "ancestor.safetensors").unlink()
    assert "cannot be read (No such file" in learn(known)
    (tmp_path / "real").write_bytes(data)
    os.symlink(tmp_path / "real", known / "ancestor.safetensors")
    assert "links are not followed" in learn(known)
    (known / "ancestor.safetensors").unlink()
    os.mkfifo(known / "ancestor.safetensors")
    assert "not a regular file" in learn(known)
    (known / "ancestor.safetensors").unlink()
    with (known / "ancestor.safetensors").open("wb") as file:
        file.truncate(2**40)
    assert "bytes, at most" in learn(known)
    (known / "ancestor.safetensors").write_bytes(data)
    (known / "ancestor.json").write_text("[" * 100_000)
    assert "not valid JSON" in learn(known)


def test_damaged_copies(known: Path, tmp_path: Path) -> None:
    """Whatever is wrong with the ancestor in a model: one sentence, and `check` finds it."""
    rivals.Model(tmp_path / "m").learn(patterns("xy", 20), "one", ancestor=known)
    described = json.loads((tmp_path / "m" / NAME).read_text())
    file = tmp_path / "m" / "tasks" / described["ancestor"]["file"]
    data = file.read_bytes()
    assert data == (known / "ancestor.safetensors").read_bytes()

    def said(found: str) -> None:
        assert not check(tmp_path / "m").whole
        with pytest.raises(rivals.RivalsError, match=found):
            rivals.Model(tmp_path / "m").predict(patterns("x", 1)[0][0])

    def rewrite(change: Callable[[dict[str, Any]], Any]) -> None:
        content = json.loads(json.dumps(described))
        change(content)
        content["sha256"] = checksum(content)
        (tmp_path / "m" / NAME).write_text(json.dumps(content))

    for place in (9, len(data) // 2, len(data) - 2):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        said("the file of its ancestor is not the one that was written")
    file.unlink()
    said("the file of its ancestor cannot be read")
    os.symlink(known / "ancestor.safetensors", file)
    said("links are not followed")
    file.unlink()
    file.write_bytes(data)
    rewrite(lambda content: content["ancestor"].update(file="0" * 16 + ".safetensors"))
    said("names a file by another checksum")
    rewrite(lambda content: content["ancestor"].pop("bytes"))
    said("how large the file of its ancestor is")
    rewrite(lambda content: content["ancestor"].pop("file"))
    said("names a file by another checksum")
    rewrite(lambda content: content["network"].update(widths=[64, 64, 64]))
    said("does not have the shape of its ancestor")
    rewrite(lambda content: None)
    assert check(tmp_path / "m").whole
    tensors = safetensors.torch.load(data)
    tensors["input.mean"] = tensors["input.mean"] + 0.1  # pictures would be prepared otherwise
    forged = safetensors.torch.save(tensors)
    name = f"{digest(forged)[:16]}.safetensors"
    (tmp_path / "m" / "tasks" / name).write_bytes(forged)
    rewrite(
        lambda content: content["ancestor"].update(
            file=name, sha256=digest(forged), bytes=len(forged)
        )
    )
    assert "tickets of one are not those that were learned" in str(check(tmp_path / "m").to_dict())


def test_what_an_ancestor_folder_says(
    known: Path, tmp_path: Path, accepted: Accepted, refused: Refused
) -> None:
    assert "The ancestor" in accepted("check", known)
    assert json.loads(accepted("info", known, "--json"))["task"] == "second"
    assert "trained on" in accepted("info", known)
    words = ("export", "--model", known, "--to", "onnx", tmp_path / "a.onnx")
    assert "which has no task to export" in refused(*words)
