"""Stems and direct tasks: a frozen module before the body, and heads that read what it reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import rivals
from rivals.cli.main import main
from rivals.edge.artefact import load
from rivals.edge.runtime_c import compiler
from rivals.errors import RivalsError
from rivals.io.files import digest
from rivals.io.pictures import to_pixels
from rivals.learn.model_twta import ModelTWTA
from rivals.learn.trainer import Trainer
from rivals.learn.twta import TWTASettings
from rivals.model import task_file
from rivals.model.checking import check
from rivals.model.folder import ModelFolder
from rivals.model.folder_writing import write_lock
from rivals.model.frozen_features import FrozenFeatures
from rivals.model.learn_options import LearnOptions
from rivals.model.learning import LearningSession
from rivals.model.manifest import NAME, checksum, file_name
from rivals.naming.discriminant import discriminant
from rivals.naming.task_record import TaskRecord
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.stem import EDGES, PIXELS, STEM, Stem
from rivals.seeds import Seed
from rivals.streams.task import Examples, Preprocessing, Task
from rivals.tickets.parallel import ParallelTickets, stem_of
from rivals.tickets.ticket import Ticket
from teaching import asked, folder, marks, teach
from toys import same_bits, ticket_bits

SHAPE = (3, 16, 16)
MLP = NetworkSettings(architecture="mlp", widths=(32,), units=4)
CONV = NetworkSettings(architecture="conv-small", widths=(16, 32), units=4)
PREPARE = Preprocessing(255.0, (0.5,) * 3, (0.25,) * 3)


class CountingStem(Stem):
    """A stem with a norm, whose statistics would move if it were trained; counts its pictures."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        layers = nn.Conv2d(3, 12, 3, 2), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        super().__init__(nn.Sequential(*layers, nn.Flatten()), 12)
        self.seen = 0

    def compute(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return super().compute(images)


def make_task(name: str, seed: int = 0, count: int = 24) -> Task:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, *SHAPE), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 3
    images[labels == 1, 0] //= 4
    images[labels == 2, 1] //= 4
    images[labels == 1, :, 1::2] = images[labels == 1, :, ::2]  # edges tell them apart, too
    images[labels == 2, :, :, 1::2] = images[labels == 2, :, :, ::2]
    held = count // 3
    return Task(
        name, ("a", "b", "c"), Examples(images[held:], labels[held:]),
        Examples(images[:held], labels[:held]), PREPARE,
    )  # fmt: skip


def learner(stem: Stem | None, **settings: object) -> ModelTWTA:
    plan = NetworkPlan(MLP if stem else CONV, SHAPE, stem=stem)
    return ModelTWTA(plan, TWTASettings(epochs=2, batch_size=8, **settings), Seed(3))  # type: ignore[arg-type]


def learn_directly(method: ModelTWTA, task: Task, kind: str) -> None:
    rows = method.direct_features(task, task.train, kind)
    apart = torch.eye(rows.shape[1]) * rows.var(0).mean()
    weight, bias = discriminant(rows, task.train.labels, apart)
    method.learn_direct(task, 0.05 * weight, 0.05 * bias)  # not so sure that nothing could change


def right(method: ModelTWTA, task: Task) -> float:
    found = method.predict(task.validation.images, task.name).label
    return float((found == task.validation.labels).float().mean())


@pytest.fixture(params=[STEM, PIXELS, EDGES])
def method(request: pytest.FixtureRequest) -> ModelTWTA:
    """A learner of a task with units, then a direct one, then one with units again."""
    made = learner(CountingStem() if request.param == STEM else None)
    Trainer(made).fit(make_task("first"))
    learn_directly(made, make_task("direct", 1), request.param)
    Trainer(made).fit(make_task("last", 2))
    return made


# Networks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "left"), [(32, 8), (48, 8), (64, 8), (8, 8), (28, 7), (9, 9)])
def test_pixels_are_pooled_to_about_eight_a_side(side: int, left: int) -> None:
    network = NetworkPlan(MLP, (1, side, side)).rivals(Seed(0))
    assert network.direct_widths[PIXELS] == left**2


def test_a_direct_head_reads_small_pixels() -> None:
    network = NetworkPlan(CONV, SHAPE).rivals(Seed(0)).eval()
    weight, bias, images = torch.randn(2, 192), torch.randn(2), torch.randn(4, *SHAPE)
    network.add_direct_head("small", weight, bias)
    small = nn.functional.adaptive_avg_pool2d(images, 8).flatten(1)
    assert torch.allclose(network(images, "small"), small @ weight.T + bias, atol=1e-5)
    assert torch.allclose(network.cut("small")(images), network(images, "small"), atol=1e-5)


def test_a_direct_task_learns_claims_nothing_and_changes_nobody(method: ModelTWTA) -> None:
    assert right(method, make_task("direct", 1, 90)) > 0.8
    assert method.winners("direct") == []
    assert all("direct" not in layer.weight.claims for layer in method.network.layers())
    bits = {name: ticket_bits(method, name) for name in method.known}
    learn_directly(method, make_task("more", 4), method.network.direct_kind("direct"))
    method.drop("direct")
    assert "direct" not in method.tasks
    for name in ("first", "last"):
        assert same_bits(bits[name], ticket_bits(method, name))


def test_tickets_equal_their_network(method: ModelTWTA) -> None:
    images = PREPARE(make_task("", 9).train.images)
    for task in method.known:
        ticket, scores = method.ticket(task), method.logits(images, task)
        assert torch.allclose(ticket(images), scores, atol=1e-4)
        assert torch.allclose(method.masked_logits(images, task), scores, atol=1e-4)


def test_the_width_of_a_head_says_what_it_reads(method: ModelTWTA) -> None:
    widths = method.network.direct_widths
    heads = {name: method.network.heads[name].weight.shape[1] for name in method.known}
    kind = method.network.direct_kind("direct")
    assert heads["direct"] == widths[kind]
    assert [method.network.direct_kind(name) for name in ("first", "last")] == ["", ""]


@pytest.mark.parametrize("kind", [PIXELS, EDGES])
def test_tasks_inherit_from_the_last_one_with_units(kind: str) -> None:
    method = learner(None)
    learn_directly(method, make_task("direct"), kind)
    assert method.ancestor(make_task("next")) is None
    Trainer(method).fit(make_task("first"))
    learn_directly(method, make_task("also direct", 1), kind)
    assert method.ancestor(make_task("next")) == "first"


def test_a_name_is_learned_once(method: ModelTWTA) -> None:
    with pytest.raises(RivalsError, match="'first' was learned before"):
        learn_directly(method, make_task("first"), method.network.direct_kind("direct"))


def test_the_state_brings_everything_back(method: ModelTWTA) -> None:
    other = learner(method.network.stem)
    other.load(method.state())
    for task in method.known:
        assert same_bits(ticket_bits(method, task), ticket_bits(other, task))
    assert other.network.direct_kind("direct") == method.network.direct_kind("direct")
    assert not other.network.is_direct("first")


def test_tasks_are_named_among_both_kinds(method: ModelTWTA) -> None:
    images = make_task("", 5).train.images
    together = method.predictor().predict(images)
    assert together.tasks == ("first", "direct", "last")
    for output, task in zip(together.outputs, together.tasks, strict=True):
        alone = ParallelTickets([method.ticket(task)], [PREPARE])(images)[0]
        assert torch.allclose(output.scores, alone.scores, atol=1e-4)
        assert output.features.shape[1] == alone.features.shape[1]


@pytest.mark.parametrize("rule", ["features", "judge", "energy"])
def test_every_rule_names_direct_tasks(rule: str) -> None:
    method = learner(None, naming={"rule": rule})
    learn_directly(method, make_task("one"), PIXELS)
    learn_directly(method, make_task("two", 1), EDGES)
    learn_directly(method, make_task("three", 2), EDGES)
    assert method.predict(make_task("", 5).train.images, None).task.shape == (16,)


def test_a_direct_head_is_refined(method: ModelTWTA) -> None:
    task, before = make_task("direct", 7, 60), ticket_bits(method, "direct")
    others = {name: ticket_bits(method, name) for name in ("first", "last")}
    accuracy = right(method, task)
    method.settings = method.settings.replace(lr=10.0)  # unstable, if features did not limit it
    Trainer(method).refine(task)
    assert not same_bits(before, ticket_bits(method, "direct"))
    assert right(method, task) >= accuracy - 0.1
    assert all(same_bits(bits, ticket_bits(method, name)) for name, bits in others.items())


# Stems -------------------------------------------------------------------------------------------


def test_a_stem_is_never_trained() -> None:
    stem = CountingStem()
    before = {name: tensor.clone() for name, tensor in stem.state_dict().items()}
    method = learner(stem)
    for number in range(3):
        Trainer(method).fit(make_task(str(number), number))
    assert not stem.network[1].training
    assert same_bits(before, stem.state_dict())


def test_a_stem_is_computed_once_to_learn_and_once_to_answer(method: ModelTWTA) -> None:
    stem = method.network.stem
    if not isinstance(stem, CountingStem):
        pytest.skip("this network has no stem")
    task, stem.seen = make_task("new", 5), 0
    Trainer(method).fit(task)
    assert stem.seen == len(task.train) + len(task.validation)
    stem.seen = 0
    method.predictor().predict(task.train.images)
    assert stem.seen == len(task.train)


def test_few_pictures_are_a_closed_form_on_the_features_of_a_stem(method: ModelTWTA) -> None:
    stem = method.network.stem
    if not isinstance(stem, CountingStem):
        pytest.skip("this network has no stem")
    task, stem.seen = make_task("few", 5, 60), 0
    closed = FrozenFeatures(method, task, Seed(0)).closed_form()
    assert closed.accuracy > 60
    assert {name: tuple(t.shape) for name, t in closed.kept.items()} == {
        "means": (3, 12), "counts": (3,), "prior": (1,), "scale": (1,), "temperature": (1,),
        "familiar": (201,), "usual": (2, 2),
    }  # fmt: skip
    method.learn_in_closed_form("few", TaskRecord(task.classes, PREPARE, closed.kept))
    assert method.network.is_direct("few")
    assert stem.seen == 60
    rows = stem(PREPARE(task.validation.images))
    near = torch.cdist(rows, closed.kept["means"].float()).argmin(1)  # Σ is one variance
    assert torch.equal(method.predict(task.validation.images, "few").label, near)
    assert closed.familiarity.log_density(rows).shape == (20,)
    stem.seen = 0
    together = method.predictor().predict(task.validation.images)
    assert stem.seen == 20  # for tickets, closed forms and the naming of tasks
    assert together.tasks == ("first", "direct", "last", "few")


def test_every_task_behind_a_stem_has_the_same_one() -> None:
    method = learner(CountingStem())
    Trainer(method).fit(make_task("one"))
    learn_directly(method, make_task("two"), STEM)
    stems = [stem_of(method.ticket(task)) for task in method.known]
    assert stems[0] is stems[1] is method.network.stem


# Models ------------------------------------------------------------------------------------------


def add_direct(model: Path, pictures: Path, name: str, kind: str) -> None:
    """Teach a model a direct task, as `learn` does with other tasks."""
    from rivals.model.budgets import TimeBudget
    from rivals.model.data_source import open_source

    with write_lock(model) as lock:
        opened = ModelFolder.open(model, lock=lock)
        session = LearningSession(
            opened, name, LearnOptions(), TimeBudget(None, 0), (), lambda _: None, lambda: False
        )
        task = session.divide(session.read(open_source(pictures, name, None)))
        learn_directly(opened.method, task, kind)
        opened.familiarity[name] = session.statistics(task)
        facts = session.facts(task, "planned", None)
        opened.commit([*opened.tasks, facts], "learn", name)


BEGINNINGS = [("none", PIXELS), ("none", EDGES), ("tiny", PIXELS), ("tiny", EDGES)]


@pytest.fixture(scope="module", params=BEGINNINGS, ids=" ".join)
def taught(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a task with units, a direct one, and another with units."""
    place, (ancestor, kind) = tmp_path_factory.mktemp("direct"), request.param
    options: dict[str, Any] = {}
    if ancestor != "none":
        options = {"network": None, "ancestor": ancestor, "size": 16, "new": 1}
    teach(folder(place / "first", (0, 1), 20), place / "model", **options)
    add_direct(place / "model", folder(place / "direct", (2, 3, 4), 20), "direct", kind)
    teach(folder(place / "last", (5, 6), 20), place / "model", **{**options, "epochs": 2})
    return place


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> Path:
    shutil.copytree(taught / "model", tmp_path / "model")
    return tmp_path / "model"


def test_a_model_knows_its_direct_task_again(model: Path) -> None:
    opened, pictures = rivals.Model(model), asked((2, 3, 4))
    answers = opened.predict([picture for picture, _ in pictures], task="direct")
    hits = [a.label == f"digit {n}" for a, (_, n) in zip(answers, pictures, strict=True)]
    assert np.mean(hits) > 0.9
    facts = {task.name: task for task in opened.tasks}
    assert facts["direct"].bytes < facts["last"].bytes
    assert facts["direct"].inherited_from == ()
    began = ModelFolder.open(model).method.network.has_ancestor
    assert facts["last"].inherited_from == (() if began else ("first",))
    rejected = opened.predict([np.full((8, 8), 255, np.uint8)], task="direct", reject=0.1)
    assert rejected[0].rejected
    assert check(model).whole


def test_what_old_models_stored_is_answered_as_ever(taught: Path) -> None:
    """The file of a task holds no word on what its head reads: 192 wide are pixels of colours."""
    model = ModelFolder.open(taught / "model")
    task, network = model.task("direct"), model.method.network
    stored = safetensors.torch.load_file(taught / "model" / "tasks" / task.file)
    weight, bias = stored["direct.weight"].squeeze(2), stored["direct.bias"]
    if weight.shape[1] != network.input_shape[0] * 64:
        pytest.skip("a model that is not old: its task reads edges")
    prepared = model.preparation(torch.randint(0, 256, (9, *network.input_shape)).byte())
    small = nn.functional.adaptive_avg_pool2d(prepared, 8).flatten(1)
    found = model.ticket("direct").network(prepared)
    assert torch.allclose(found, small @ weight.T + bias, atol=1e-4)


def test_dropping_leaves_the_others(model: Path) -> None:
    before = marks(model)
    rivals.Model(model).drop("direct")
    assert {name: before[name] for name in ("first", "last")} == marks(model)
    rivals.Model(model).drop("first")
    assert {"last": before["last"]} == marks(model)
    assert check(model).whole


def test_a_direct_task_outlives_the_others(model: Path) -> None:
    before = marks(model)
    rivals.Model(model).drop("first")
    rivals.Model(model).drop("last")
    assert {"direct": before["direct"]} == marks(model)
    assert check(model).whole


def test_a_direct_task_is_refined_in_its_model(model: Path, tmp_path: Path) -> None:
    more = folder(tmp_path / "more", (2, 3, 4), 20, first=20)
    learned = rivals.Model(model).learn(more, "direct", again=True, epochs=4)
    assert learned.facts.refined == 1 or not learned.kept
    assert check(model).whole


def test_info_shows_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["info", str(model)], ["info", str(model), "--json"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert not end.value.code
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert facts["winners"]["direct"] == []
    assert facts["overlap"][0][1] == 0


def test_a_direct_ticket_as_a_folder(model: Path, tmp_path: Path) -> None:
    ticket = rivals.Model(model).ticket("direct")
    ticket.save(tmp_path / "ticket")
    again = Ticket.load(tmp_path / "ticket")
    pixels = torch.randint(0, 256, (5, *ticket.input_shape), dtype=torch.uint8)
    assert torch.equal(again(pixels), ticket(pixels))
    assert again.fingerprint() == ticket.fingerprint()


@pytest.mark.parametrize("to", ["onnx", "ort", "onnx-int8", "c"])
def test_a_direct_ticket_is_exported(model: Path, taught: Path, tmp_path: Path, to: str) -> None:
    pytest.importorskip("onnxruntime")
    if to == "c" and compiler() is None:
        pytest.skip("no C compiler")
    out = tmp_path / {"onnx": "a.onnx", "ort": "a.ort", "onnx-int8": "b.onnx", "c": "c"}[to]
    made = rivals.Model(model).export("direct", out, to=to, images=taught / "direct")
    assert made.parity.agreement >= (0.99 if to == "onnx-int8" else 1)


@pytest.mark.parametrize("kind", [PIXELS, EDGES])
def test_larger_pictures_are_pooled_in_exports(tmp_path: Path, kind: str) -> None:
    """In the model above a pixel stays a pixel; here cells are two wide, and some are left over."""
    pytest.importorskip("onnxruntime")
    place = folder(tmp_path / "pictures", (0, 1), 12)
    teach(place, tmp_path / "model", size=20, name="first", epochs=1)
    add_direct(tmp_path / "model", place, "direct", kind)
    model = rivals.Model(tmp_path / "model")
    formats = ["onnx", *(["c"] if compiler() else [])]
    for to in formats:
        out = tmp_path / {"onnx": "a.onnx", "c": "c"}[to]
        assert model.export("direct", out, to=to, images=place).parity.agreement == 1


def test_a_whole_model_is_exported(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    words = ["export", str(tmp_path / "whole.onnx"), "--model", str(model), "--all-tasks"]
    with pytest.raises(SystemExit) as end:
        main(words)
    assert not end.value.code
    pictures = [picture for picture, _ in asked((2, 5), first=150)]
    shape = ModelFolder.open(model).description.input_shape
    pixels = np.stack([to_pixels(picture, shape) for picture in pictures])
    found = load(tmp_path / "whole.onnx").answers(pixels)
    wanted = rivals.Model(model).predict(list(pictures))
    assert [a.label for a in found] == [a.label for a in wanted]


def test_altered_files_are_refused(model: Path) -> None:
    """A file of a direct task whose head does not fit, or that has units besides."""
    content = json.loads((model / NAME).read_text())
    place = [task["name"] for task in content["tasks"]].index("direct")
    file = model / "tasks" / content["tasks"][place]["file"]
    tensors = safetensors.torch.load_file(file)
    widths = ModelFolder.open(model).method.network.direct_widths
    (other,) = set(widths.values()) - {tensors["direct.weight"].shape[1]}
    for changed in (
        {**tensors, "direct.weight": torch.zeros(3, other, 1)},
        {**tensors, "direct.weight": torch.zeros(3, 63, 1)},
        {**tensors, "layer0.claimed": torch.zeros(0, 1, dtype=torch.float16)},
        {name: t for name, t in tensors.items() if name != "direct.bias"},
    ):
        data = safetensors.torch.save(changed)
        facts = content["tasks"][place]
        facts |= {"sha256": digest(data), "file": file_name(digest(data)), "bytes": len(data)}
        (model / "tasks" / facts["file"]).write_bytes(data)
        content["sha256"] = checksum(content)
        (model / NAME).write_text(json.dumps(content))
        with pytest.raises(RivalsError, match="does not fit its network at"):
            rivals.Model(model).predict(asked((2,))[0][0])


@pytest.mark.parametrize("kind", [PIXELS, EDGES])
def test_a_head_wider_than_any_is_refused_before_it_is_loaded(kind: str) -> None:
    network = NetworkPlan(MLP, (1, 8, 8)).rivals(Seed(0))
    width = network.direct_widths[kind]
    fitting = task_file.expected(network, 3, width) | task_file.statistics(network, 3, ())
    assert task_file.misfit(fitting, network, 3) == ""
    for other in (0, -1, 63, width + 1, 2**40):
        found = {**fitting, "direct.weight": ("F32", (3, other, 1))}
        assert task_file.misfit(found, network, 3) == "direct.weight"
    assert task_file.misfit({**fitting, "direct.weight": ("F16", (3, width, 1))}, network, 3)
