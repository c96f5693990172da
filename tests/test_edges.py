"""Edges by place and direction, and learning by them alone: `Gradients`, `EdgeDiscriminant`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import rivals
from rivals.learn.linear_head import FOLDS
from rivals.learn.model_twta import ModelTWTA
from rivals.learn.twta import TWTASettings
from rivals.model import defaults
from rivals.model.advice import CLOSED_FORM, EDGES, NEAREST
from rivals.model.edge_discriminant import PRIORS, EdgeDiscriminant
from rivals.model.folder import ModelFolder
from rivals.nn import stem
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.plain_layers import Gradients
from rivals.seeds import Seed
from rivals.streams.stream import folds
from rivals.streams.task import Examples, Task, centred
from rivals.tickets.cost import cost, multiplications, working_memory
from rivals.tickets.ticket_checks import VALUES, layer_shape
from teaching import folder, marks

SIDE, WAYS = 32, 8
DIRECTIONS = Gradients.DIRECTIONS
Pictures = tuple[NDArray[np.uint8], list[str]]


def learner() -> ModelTWTA:
    plan = NetworkPlan(NetworkSettings(architecture="mlp"), (3, SIDE, SIDE))
    return ModelTWTA(plan, TWTASettings(), Seed(0))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def wave(angle: float, side: int = 48, phase: float = 0.3) -> Tensor:
    """Stripes (1, 1, side, side) whose brightness changes in the direction `angle`."""
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    across = math.cos(angle) * column + math.sin(angle) * row
    return (across * 2 * math.pi / 9 + phase).sin()[None, None]


def strongest(images: Tensor, cell: int = 6) -> int:
    return int(Gradients(cell)(images).sum((0, 2, 3)).argmax())


# Gradients ---------------------------------------------------------------------------------------


def test_each_direction_has_its_number() -> None:
    for number in range(DIRECTIONS):
        angle = math.pi * number / DIRECTIONS
        assert strongest(wave(angle)) == number
        assert strongest(wave(angle + math.pi)) == number  # up to its sign


def test_the_equation_on_a_single_edge() -> None:
    """A step of height h: a gradient of h/2 in the two columns beside it, and none elsewhere."""
    cell, height = 4, 0.8
    picture = torch.zeros(1, 1, 34, 34)
    picture[..., 17:] = height
    found = Gradients(cell)(picture)
    angles = torch.arange(DIRECTIONS) * math.pi / DIRECTIONS
    strong = torch.zeros(1, 1, 32, 32)
    strong[..., 15:17] = height / 2
    share = angles.cos().abs() ** 7  # cos⁶ of the angle to a direction, times the cosine itself
    cells = nn.functional.avg_pool2d(strong * share[None, :, None, None], 2 * cell, cell, 3)
    around = nn.functional.avg_pool2d(cells.square().sum(1, keepdim=True), 3, 1, 1)
    wanted = cells / (around + Gradients.EVEN).sqrt()
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, atol=1e-3)
    assert int(found.sum((0, 2, 3)).argmax()) == 0
    assert torch.allclose(found[0, 4], torch.zeros(()), atol=1e-3)  # across the edge: nothing


def test_turning_the_picture_turns_the_direction() -> None:
    picture = noise(1, 1, 48, 48) + wave(math.pi / 8)
    found = Gradients(6)(picture)
    turned = Gradients(6)(picture.rot90(1, (2, 3)))
    assert found.shape == turned.shape == (1, 8, 8, 8)
    strong = [int(each.sum((0, 2, 3)).argmax()) for each in (found, turned)]
    assert (strong[0] + 4) % 8 == strong[1]
    # Cells do not lie quite evenly, so directions are compared as sums.
    sums = found.sum((0, 2, 3)), turned.sum((0, 2, 3)).roll(4)
    assert torch.allclose(*sums, rtol=0.05)


def test_contrast_light_and_colour_do_not_count() -> None:
    pictures = 2 * noise(3, 1, 40, 40)
    found = Gradients(5)(pictures)
    assert torch.allclose(Gradients(5)(pictures + 7), found, atol=1e-3)
    assert torch.allclose(Gradients(5)(-pictures), found, atol=1e-5)
    assert torch.allclose(Gradients(5)(8 * pictures), found, rtol=0.05)
    assert torch.allclose(Gradients(5)(pictures.expand(-1, 3, -1, -1)), found, atol=1e-5)
    assert float(Gradients(5)(pictures / 1000).max()) < 0.01  # what is nearly even, is even


def test_a_picture_of_one_colour_has_no_edges() -> None:
    for value in (0.0, 1.0, -0.37):
        assert torch.allclose(
            Gradients(2)(torch.full((1, 3, 16, 16), value)), torch.zeros(1, 8, 8, 8), atol=1e-4
        )


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.integers(1, 4))
@example(2, 2, 1, 1)
@example(3, 3, 1, 3)
@example(3, 2, 2, 1)
@example(8, 8, 1, 1)
def test_a_stored_layer_gives_the_shape_that_it_says(
    height: int, width: int, cell: int, channels: int
) -> None:
    node = {"op": "gradients", "name": "edges", "cell": cell}
    try:
        said = layer_shape(node, {}, [(channels, height, width)])
    except ValueError:
        said = None
    try:
        found = tuple(Gradients(cell)(torch.zeros(1, channels, height, width)).shape[1:])
    except RuntimeError:  # of torch: too small
        found = None
    assert said == found


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        ({"cell": 0}, (3, 48, 48)),
        ({"cell": -1}, (3, 48, 48)),
        ({"cell": 2.0}, (3, 48, 48)),
        ({"cell": True}, (3, 48, 48)),
        ({"cell": "6"}, (3, 48, 48)),
        ({"cell": 4097}, (3, 48, 48)),
        ({"cell": 100}, (3, 48, 48)),
        ({"cell": 1}, (3, 2, 48)),
        ({"cell": 6}, (2304,)),
        ({"cell": 500}, (1, 4096, VALUES // 4096)),  # eight times as much on the way as allowed
        ({}, (3, 48, 48)),
    ],
)
def test_impossible_gradients_are_refused(
    change: dict[str, object], shape: tuple[int, ...]
) -> None:
    with pytest.raises((ValueError, LookupError)):
        layer_shape({"op": "gradients", "name": "edges", **change}, {}, [shape])
    assert layer_shape({"op": "gradients", "name": "e", "cell": 6}, {}, [(3, 48, 48)]) == (8, 8, 8)


@pytest.mark.parametrize("channels", [1, 3])
def test_no_two_kinds_of_direct_heads_are_as_wide(channels: int) -> None:
    """The width of a stored head says what it reads."""
    settings = NetworkSettings(architecture="mlp", widths=(8,), units=2)
    for side in (3, 8, 9, 16, 20, 28, 32, 48, 50, 64, 96):
        network = NetworkPlan(settings, (channels, side, side)).rivals(Seed(0))
        assert set(network.direct_widths) == {stem.PIXELS, stem.EDGES}
        assert len(set(network.direct_widths.values())) == 2


@pytest.mark.parametrize("shape", [(1, 1, 1), (12, 1, 1), (1, 2, 2), (1, 1, 40)])
def test_rows_of_numbers_have_no_edges(shape: tuple[int, int, int]) -> None:
    settings = NetworkSettings(architecture="mlp", widths=(8,), units=2)
    network = NetworkPlan(settings, shape).rivals(Seed(0))
    assert list(network.direct_inputs) == [stem.PIXELS]


# Cost and export ---------------------------------------------------------------------------------


def edge_ticket(shape: tuple[int, int, int], classes: int = 5) -> torch.fx.GraphModule:
    settings = NetworkSettings(architecture="mlp", widths=(8,), units=2)
    network = NetworkPlan(settings, shape).rivals(Seed(0)).eval()
    weight = noise(classes, network.direct_widths[stem.EDGES]) - 0.5
    network.add_direct_head("edges", weight, torch.zeros(classes))
    return network.cut("edges")


def test_gradients_cost_what_torch_counts() -> None:
    ticket, shape = edge_ticket((3, 48, 48)), (3, 48, 48)
    assert multiplications(ticket, shape) == 8 * 9 * 46**2 + 512 * 5
    with FlopCounterMode(display=False) as counter:
        ticket(torch.zeros(1, *shape))
    assert multiplications(ticket, shape) == counter.get_total_flops() // 2
    found = cost(ticket, shape)
    assert found.weights == 512 * 5 + 5
    assert 4 * found.weights < found.bytes < 4 * found.weights + 500  # filters are not stored


@pytest.fixture(scope="module")
def edge_graph() -> object:
    """The ONNX graph of a ticket on edges, prepared images in."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module, reason=f"{module} is not installed: rivals[export]")
    from rivals.deploy.prepared import graph

    return graph(edge_ticket((1, 24, 24)), (1, 24, 24), False, ["scores"])


def test_nothing_is_divided_by_nothing_in_onnx(edge_graph) -> None:  # type: ignore[no-untyped-def]
    """The exporter drops what it takes for zero: pictures of one colour were not numbers."""
    import onnxruntime as ort

    session = ort.InferenceSession(edge_graph.SerializeToString())
    images = torch.cat([torch.zeros(1, 1, 24, 24), noise(2, 1, 24, 24)])
    (found,) = session.run(None, {"images": images.numpy()})
    assert torch.allclose(torch.from_numpy(found), edge_ticket((1, 24, 24))(images), atol=1e-4)


def test_edges_stay_float_in_bytes(edge_graph, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from rivals.deploy.prepared import OF_GRADIENTS
    from rivals.deploy.quantise import layers, quantise

    of_edges = [n for n in edge_graph.graph.node if n.name.startswith(OF_GRADIENTS)]
    assert [n.op_type for n in of_edges].count("Conv") == 1
    assert len(layers(edge_graph)) == 1  # only the head has weights that may be bytes
    images = noise(64, 1, 24, 24)
    small = quantise(edge_graph, [], images, tmp_path / "stage.onnx")
    makers = {name: node.op_type for node in small.graph.node for name in node.output}
    kinds = [node.op_type for node in small.graph.node]
    assert "QuantizeLinear" in kinds
    convolution = next(node for node in small.graph.node if node.op_type == "Conv")
    assert "DequantizeLinear" not in [makers.get(name) for name in convolution.input]
    head = next(node for node in small.graph.node if node.op_type in ("Gemm", "MatMul"))
    assert makers[head.input[0]] == "DequantizeLinear"


def test_memory_in_c_is_what_is_said(edge_graph) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("emx_onnx_cgen", reason="emx-onnx-cgen is not installed: rivals[c].")
    from rivals.deploy.c.c_network import generate
    from rivals.deploy.c.static_memory import plan
    from rivals.tickets.ticket import Ticket

    ticket = Ticket(edge_ticket((1, 24, 24)), "e", tuple("abcde"), centred(1), (1, 24, 24))
    planned = 4 * plan(generate(ticket), prepares=True).floats
    assert planned == working_memory(ticket.network, (1, 24, 24)) == 4 * 17 * 22**2


# A discriminant on edges -------------------------------------------------------------------------


def stripes(count: int, seed: int = 0, ways: int = WAYS) -> Pictures:
    """Stripes of random phase, width and colour: only their direction tells classes apart."""
    chance = np.random.default_rng(seed)
    row, column = np.mgrid[:SIDE, :SIDE]
    images, labels = [], []
    for number in range(count):
        angle = (number % ways + chance.uniform(-0.3, 0.3)) * math.pi / ways
        across = math.cos(angle) * column + math.sin(angle) * row
        waves = np.sin(2 * math.pi * across / chance.uniform(5, 12) + chance.uniform(0, 7))
        colour = chance.uniform(5, 30, 3) * chance.choice([-1, 1], 3)
        picture = chance.uniform(40, 215, 3) + colour * waves[..., None]
        images.append(picture + chance.normal(0, 10, picture.shape))
        labels.append(f"way {number % ways}")
    return np.clip(images, 0, 255).astype(np.uint8), labels


def edge_task(count: int = 120, held: int = 24, seed: int = 0) -> Task:
    images, labels = stripes(count, seed)
    pixels = torch.from_numpy(np.moveaxis(images, 3, 1).copy())
    numbers = torch.tensor([int(label[-1]) for label in labels])
    return Task(
        "ways", tuple(f"way {n}" for n in range(WAYS)), Examples(pixels[held:], numbers[held:]),
        Examples(pixels[:held], numbers[:held]), centred(3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def found() -> EdgeDiscriminant:
    return EdgeDiscriminant(learner(), edge_task(), Seed(4))


def test_it_is_tested_on_pictures_it_did_not_learn_from(found: EdgeDiscriminant) -> None:
    """The same answers from all directions, fold by fold; on what it learned it would be better."""
    assert found.few_rows.shape == (120, 120)
    assert found.rows.shape == (120, 512)
    again = torch.empty_like(found.predicted)
    for kept, held in folds(found.labels, FOLDS, Seed(4)):
        weight, bias = found.fit(found.rows[kept], found.labels[kept])
        again[held] = (found.rows[held] @ weight.T + bias).argmax(1)
    assert float((again == found.predicted).float().mean()) > 0.98
    assert found.accuracy == 100 * float((found.predicted == found.labels).float().mean())
    weight, bias = found.head
    learned = 100 * float(((found.rows @ weight.T + bias).argmax(1) == found.labels).float().mean())
    assert 40 < found.accuracy < learned


def test_few_directions_say_as_much_as_all(found: EdgeDiscriminant) -> None:
    for prior in PRIORS:
        every = found._fit(found.rows, found.labels, prior)
        few = found._fit(found.few_rows, found.labels, prior)
        scores = [rows @ head[0].T + head[1] for rows, head in
                  ((found.rows, every), (found.few_rows, few))]  # fmt: skip
        apart = [each - each.mean(1, keepdim=True) for each in scores]
        assert torch.allclose(*apart, atol=0.01 * float(apart[0].abs().max()))


def test_held_out_pictures_are_answered_by_the_others(found: EdgeDiscriminant) -> None:
    weight, bias = found.fit(found.rows[:96], found.labels[:96])
    right = (found.rows[96:] @ weight.T + bias).argmax(1) == found.labels[96:]
    assert found.validation_accuracy() == pytest.approx(100 * float(right.float().mean()), abs=5)


def test_it_is_as_sure_as_cross_validation_allows(found: EdgeDiscriminant) -> None:
    weight, _ = found.fit(found.rows, found.labels)
    assert torch.equal(found.head[0], found.scale * weight)
    assert found.prior in PRIORS


def test_a_seed_makes_the_same_one(found: EdgeDiscriminant) -> None:
    method, task = learner(), edge_task()
    again, other = (EdgeDiscriminant(method, task, Seed(number)) for number in (4, 5))
    assert torch.equal(again.predicted, found.predicted)
    assert all(torch.equal(*pair) for pair in zip(again.head, found.head, strict=True))
    assert not torch.equal(other.splits[0][1], found.splits[0][1])


@pytest.mark.parametrize(
    ("gained", "lost", "better"),
    [(0, 0, False), (1, 0, False), (2, 0, True), (10, 5, True), (9, 6, False), (0, 9, False)],
)
def test_better_is_more_than_chance(gained: int, lost: int, better: bool) -> None:
    """A gain of more than one standard error of the difference: 2:0, 10:5."""
    labels = torch.zeros(60, dtype=torch.int64)
    made = EdgeDiscriminant.__new__(EdgeDiscriminant)
    made.labels, made.predicted, other = labels, labels.clone(), labels.clone()
    other[:gained] = 1
    made.predicted[gained : gained + lost] = 1
    assert made.beats(other) == better


# Learning ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of stripes and, without a choice, of the same in closed form. Only to be read."""
    place = tmp_path_factory.mktemp("edges") / "model"
    model = rivals.Model(place)
    kept = model.learn(stripes(160), "ways", ancestor="tiny", size=SIDE).advice
    assert kept is not None
    assert kept.kept == EDGES
    assert kept.cross_validated
    assert kept.tested == 160
    assert model.learn(stripes(160), "closed", new=0).advice.kept in (CLOSED_FORM, NEAREST)
    return place


def right(model: Path, task: str | None) -> float:
    images, labels = stripes(160, seed=1)
    answers = rivals.Model(model).predict(list(images), task=task)
    return 100 * float(np.mean([a.label == b for a, b in zip(answers, labels, strict=True)]))


def test_only_edges_tell_stripes_apart(learned: Path) -> None:
    opened = ModelFolder.open(learned)
    assert opened.method.network.direct_kind("ways") == stem.EDGES
    assert opened.method.network.direct_kind("closed") == ""
    facts = {task.name: task for task in opened.tasks}
    assert (facts["ways"].images, facts["ways"].held) == (160, 160)
    assert right(learned, "ways") > max(60, right(learned, "closed") + 10)
    assert abs(right(learned, "ways") - facts["ways"].accuracy) < 12
    assert facts["ways"].macs == multiplications(opened.ticket("ways").network, (3, SIDE, SIDE))


def test_the_task_is_named_among_others(learned: Path, tmp_path: Path) -> None:
    images, _ = stripes(20, seed=2)
    answers = rivals.Model(learned).predict(list(images))
    assert {answer.task for answer in answers} <= {"ways", "closed"}


def test_learning_is_the_same_each_time(learned: Path, tmp_path: Path) -> None:
    again = rivals.Model(tmp_path / "again")
    again.learn(stripes(160), "ways", ancestor="tiny", size=SIDE)
    assert marks(tmp_path / "again")["ways"] == marks(learned)["ways"]


def test_learn_says_in_words_that_edges_were_kept(
    tmp_path: Path, accepted: Callable[..., str]
) -> None:
    from PIL import Image

    for number, (image, label) in enumerate(zip(*stripes(160), strict=True)):
        place = tmp_path / "stripes" / label
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    words = ("learn", tmp_path / "stripes", "--model", tmp_path / "m", "--ancestor", "tiny")
    printed = accepted(*words, "--size", SIDE)
    assert "Kept: linear discriminant on edges. For comparison: nearest class mean" in printed
    assert " in cross-validation of 160 pictures." in printed
    events = accepted(*words, "--json", "--name", "again").splitlines()
    done = json.loads(events[-1])
    assert done["advice"]["kept"] == EDGES
    assert done["advice"]["learners"][0] == ["linear discriminant on edges", done["accuracy"]]
    assert done["advice"]["more_pictures"]["accuracies"][-1] > 50
    began = [event for event in map(json.loads, events) if event["event"] == "begins"]
    assert [event["images"] for event in began] == [160]


def test_edges_may_be_better_than_a_trained_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New units are tried and dropped: nothing of them is left, nor are their steps."""
    monkeypatch.setattr(defaults, "FEWEST_NEW", 1)
    monkeypatch.setattr(defaults, "GOOD_ENOUGH", 101.0)
    monkeypatch.setattr(defaults, "WORTH_NEW", 100.0)
    model, events = rivals.Model(tmp_path / "m"), list[dict[str, object]]()
    settings = {"ancestor": "tiny", "size": SIDE, "listener": events.append}
    learned = model.learn(stripes(64, ways=4), "ways", **settings)
    assert learned.advice is not None
    assert learned.advice.kept == EDGES
    assert (learned.facts.steps, learned.facts.stopped) == (0, "planned")
    steps = [event["steps"] for event in events if event["event"] == "begins"]
    assert steps[0] != 0
    assert steps[-1] == 0
    opened = ModelFolder.open(tmp_path / "m")
    assert all("ways" not in layer.weight.claims for layer in opened.method.network.layers())


def test_without_an_ancestor_no_edges_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("edges are tried beside an ancestor only")

    monkeypatch.setattr("rivals.model.learning.EdgeDiscriminant", never)
    pictures = folder(tmp_path / "digits", (3, 5), 12)
    one, two = (rivals.Model(tmp_path / name) for name in "ab")
    for model in (one, two):
        learned = model.learn(pictures, ancestor="none", size=8, epochs=1)
        assert learned.advice is not None
        assert EDGES not in (learned.advice.kept, *learned.advice.baselines)
    assert marks(tmp_path / "a") == marks(tmp_path / "b")
    model = rivals.Model(tmp_path / "c")
    assert model.learn(pictures, ancestor="tiny", new=0).advice.kept in (CLOSED_FORM, NEAREST)
