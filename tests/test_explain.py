"""`rivals explain`: the part of a picture that decided, right by construction, and what is near."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from PIL import Image

import rivals
from rivals.errors import RivalsError
from rivals.model.explaining import NEAREST, percent
from rivals.model.heat_picture import AGAINST, FOR, draw_heat
from rivals.model.occlusion import (
    BUDGET,
    MOST_OF_IT,
    SIDES,
    Grid,
    covered,
    hottest_part,
    name_of_place,
)
from rivals.naming import gaussian
from rivals.nn.stem import EDGES, PIXELS
from rivals.nn.timm_library import library
from test_direct import add_direct

SIDE = 32
ROWS, COLUMNS = slice(4, 14), slice(18, 28)  # of the square that decides
KINDS = ("closed", "units", PIXELS, EDGES)
Accepted = Callable[..., str]
Refused = Callable[..., str]


def picture(label: str | None, seed: int) -> NDArray[np.uint8]:
    """Faint noise; a class is a square with stripes that differ in colour and in direction."""
    image = np.random.default_rng(seed).integers(70, 100, (SIDE, SIDE, 3), dtype=np.uint8)
    if label is not None:
        square = np.zeros((10, 10, 3), np.uint8)
        square[[0, 1, 4, 5, 8, 9], :, 0 if label == "red" else 2] = 255
        image[ROWS, COLUMNS] = square if label == "red" else square.swapaxes(0, 1)
    return image


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("squares")
    for number, label in enumerate(["red", "blue"] * 24):
        (place / label).mkdir(exist_ok=True)
        Image.fromarray(picture(label, number)).save(place / label / f"{number}.png")
    return place


@pytest.fixture(scope="module")
def model(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that learned the same in four ways, a task each. Only to be read."""
    place = tmp_path_factory.mktemp("explained") / "model"
    opened = rivals.Model(place)
    opened.learn(pictures, "closed", ancestor="tiny", size=SIDE, new=0)
    opened.learn(pictures, "units", new=1, epochs=4)
    for kind in (PIXELS, EDGES):
        add_direct(place, pictures, kind, kind)
    return place


# Right by construction ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", KINDS)
def test_the_heat_lies_on_the_square_that_decides(model: Path, task: str) -> None:
    """Whatever learned it: statistics, trained units, a head on pixels or on edges."""
    opened = rivals.Model(model)
    inside = np.zeros((SIDE, SIDE), bool)
    inside[ROWS, COLUMNS] = True
    absent = np.abs(opened.explain(picture(None, 99), task).heat).max()
    for label in ("red", "blue"):
        found = opened.explain(picture(label, 98), task)
        assert (found.label, found.task, found.part) == (label, task, "upper right")
        down, across = np.nonzero(found.heat == found.heat.max())
        assert ROWS.start <= down.min() <= down.max() < ROWS.stop
        assert COLUMNS.start <= across.min() <= across.max() < COLUMNS.stop
        assert found.heat[inside].mean() > 3 * np.abs(found.heat[~inside]).mean()
        assert absent < found.heat.max() / 2
        assert found.without < found.probability
        assert found.lost > 0


def test_the_heat_of_a_backbone_is_what_its_definition_says(pictures: Path, tmp_path: Path) -> None:
    """For each patch the picture is covered by hand, and the model asked as anybody would."""
    if find_spec("timm") is None:
        pytest.skip("timm is not installed: rivals[timm]")
    torch.manual_seed(5)
    network = library().create_model("test_resnet", num_classes=7)
    weights = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(network.state_dict(), weights)
    model = rivals.Model(tmp_path / "model")
    model.learn(pictures, "squares", ancestor=f"timm:test_resnet={weights}", size=SIDE)
    image = picture("red", 98)
    found = model.explain(image)

    def log_odds(some: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
        answers = [{c.label: c.confidence for c in each.choices} for each in model.predict(some)]
        other = {"red": "blue", "blue": "red"}[found.label]
        return np.log([each[found.label] / each[other] for each in answers])

    lost, times = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE))
    cell = SIDE // 16
    starts = range(-2 * cell, SIDE - cell, cell)  # a patch has four cells a side
    patches = [
        (slice(max(0, top), top + 4 * cell), slice(max(0, left), left + 4 * cell))
        for top in starts
        for left in starts
    ]
    hidden = []
    for patch in patches:
        rest = np.ones((SIDE, SIDE), bool)
        rest[patch] = False
        hidden.append(image.copy())
        hidden[-1][patch] = image[rest].mean(0).round()
    for patch, cost in zip(patches, log_odds([image]) - log_odds(hidden), strict=True):
        lost[patch] += cost
        times[patch] += 1
    assert np.allclose(found.heat, lost / times, atol=2e-3)


def test_the_other_class_sees_evidence_against_it(model: Path) -> None:
    opened = rivals.Model(model)
    found = opened.explain(picture("red", 97), "closed", label="blue")
    assert (found.answer.label, found.label, found.decided) == ("red", "blue", False)
    assert found.probability == pytest.approx(1 - found.answer.confidence, abs=1e-6)
    usual = opened.explain(picture("red", 97), "closed")
    assert np.allclose(found.heat, -usual.heat, atol=1e-3)  # of two classes
    assert found.heat[ROWS, COLUMNS].mean() < 0


def test_the_same_picture_has_the_same_explanation(model: Path, pictures: Path) -> None:
    file = pictures / "red" / "0.png"
    one, other = (rivals.Model(model).explain(each) for each in (file, file.read_bytes()))
    assert one.to_dict() == other.to_dict()
    assert one.png() == other.png()
    assert one.answer == rivals.Model(model).predict(file)


# The parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [8, 24, 32, 48, 100, 224])
@pytest.mark.parametrize("macs", [0, 10**6, 40 * 10**6, 4 * 10**9])
def test_a_grid_follows_its_budget(side: int, macs: int) -> None:
    grid = Grid.for_budget(side, side + 3, macs)
    assert grid.side <= side
    assert grid.passes * macs <= BUDGET or grid.side == SIDES[-1]
    patches = grid.patches()
    assert patches.shape == (grid.passes, side, side + 3)
    assert bool(patches.any(0).all())  # every pixel is covered at least once
    assert len(torch.unique(patches.flatten(1), dim=0)) == grid.passes


def test_heat_is_the_mean_of_the_patches_over_a_cell() -> None:
    grid = Grid(8, 8, 8, 2)
    lost = torch.rand(grid.passes)
    patches = grid.patches().float()
    expected = (lost[:, None, None] * patches).sum(0) / patches.sum(0)
    assert torch.allclose(grid.pixels(grid.heat(lost)), expected)


def test_a_covered_part_has_the_mean_colour_of_the_rest() -> None:
    image = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8)
    places = torch.zeros(2, 8, 8, dtype=torch.bool)
    places[0, 2:5, 3:6], places[1] = True, True
    found = covered(image, places)
    assert torch.equal(found[0][:, ~places[0]], image[:, ~places[0]])
    rest = image[:, ~places[0]].float().mean(1).round()
    assert torch.equal(found[0][:, 3, 4].float(), rest)
    assert bool((found[1] == found[1, 0, 0, 0]).all())  # nothing is left: grey
    assert int(found[1, 0, 0, 0]) in (127, 128)


def test_a_part_is_connected_and_has_a_name() -> None:
    heat = torch.zeros(9, 9)
    heat[0:2, 0:3], heat[7:9, 7:9], heat[0, 0] = 5.0, 4.0, 6.0
    assert torch.equal(torch.nonzero(hottest_part(heat, 0.5)), torch.nonzero(heat[:3] >= 5))
    assert not hottest_part(-heat - 1, 0.5).any()
    assert not hottest_part(torch.zeros(4, 4), 0.5).any()
    places = {
        name_of_place(torch.eye(9)[row][:, None] * torch.eye(9)[column] > 0)
        for row in (1, 4, 7)
        for column in (1, 4, 7)
    }
    assert len(places) == 9
    assert {"upper left", "middle", "middle right", "bottom"} <= places
    assert name_of_place(torch.ones(4, 4) > 0) == MOST_OF_IT


def test_distances_and_densities_agree() -> None:
    rows, labels = torch.randn(40, 6), torch.arange(40) % 3
    kept = gaussian.fit(rows, labels)
    squared = gaussian.squared_distances(rows, kept)
    spread = torch.linalg.inv(gaussian.full_covariance(kept))
    apart = (rows[:, None] - kept["means"]).double()
    expected = torch.einsum("nld,de,nle->nl", apart, spread, apart)
    assert torch.allclose(squared.double(), expected, rtol=1e-3)
    density = -(squared.min(1).values + gaussian.log_volume(kept)) / 2
    assert torch.equal(gaussian.log_density(rows, kept), density)


def test_near_classes_are_those_of_the_picture(model: Path) -> None:
    found = rivals.Model(model).explain(picture("blue", 96), "closed")
    assert len(found.nearest) == min(NEAREST, 2 * len(KINDS))
    distances = [each.distance for each in found.nearest]
    assert distances == sorted(distances)
    for task in KINDS:
        (near, far) = (each for each in found.nearest if each.task == task)
        assert (near.label, far.label) == ("blue", "red")
        assert 0 <= far.farther <= near.farther <= 1
        assert near.distance < 2  # as usual for held-out pictures


def test_the_heat_is_drawn_where_it_is() -> None:
    heat = np.zeros((4, 4), np.float32)
    heat[0, 0], heat[3, 3] = 9, -9
    drawn = np.asarray(draw_heat(Image.new("RGB", (300, 200), "white"), heat)).astype(int)
    assert drawn.shape == (200, 300, 3)
    assert np.abs(drawn[0, 0] - FOR).sum() < np.abs(drawn[0, 0] - 255).sum()
    assert np.abs(drawn[-1, -1] - AGAINST).sum() < np.abs(drawn[-1, -1] - 255).sum()
    assert (drawn[5, -5] == 255).all()
    small = draw_heat(Image.new("L", (8, 4)), heat)
    assert small.size == (256, 128)


def test_percents_are_short() -> None:
    told = [percent(each) for each in (0.0, 0.004, 0.12, 0.914, 0.996, 1.0)]
    assert told == ["0.0 %", "0.4 %", "12 %", "91 %", "99.6 %", "100.0 %"]


# The command line --------------------------------------------------------------------------------


def test_a_picture_is_explained_in_a_sentence_and_a_file(
    model: Path, tmp_path: Path, accepted: Accepted
) -> None:
    photo = Image.fromarray(picture("red", 95)).resize((900, 600))
    exif = Image.Exif()
    exif[274] = 6  # lies on its side: to be turned by a quarter
    photo.rotate(90, expand=True).save(tmp_path / "red.jpg", exif=exif)
    out = tmp_path / "heat.png"
    words = ["explain", tmp_path / "red.jpg", "--model", model, "--task", "units"]
    printed = accepted(*words, "--out", out)
    assert f"{tmp_path / 'red.jpg'}: red" in printed
    assert "The upper right decided: without it 'red' falls from" in printed
    assert "and the answer is 'blue'" in printed
    assert f"Saved the heat map as {out}." in printed
    with Image.open(out) as saved:
        assert (saved.format, saved.size) == ("PNG", (768, 512))
        drawn = np.asarray(saved.convert("RGB")).astype(int)
    orange = (drawn[..., 0] - drawn[..., 2]).clip(0)
    down, across = np.unravel_index(orange.argmax(), orange.shape)
    assert down < 200
    assert across > 430
    told = json.loads(accepted(*words, "--json"))
    assert (told["label"], told["part"], told["decided"]) == ("red", "upper right", True)
    assert told["sentence"] in printed
    assert np.shape(told["heat"]) == (16, 16)
    assert told["without"] < 0.5 < told["probability"] == told["answer"]["confidence"]


def test_what_cannot_be_explained_is_one_sentence(
    model: Path, pictures: Path, tmp_path: Path, refused: Refused
) -> None:
    file = pictures / "red" / "0.png"
    words = ["explain", file, "--model", model]
    assert "There is no class named 'read'; did you mean red?" in refused(*words, "--class", "read")
    said = refused(*words, "--task", "closed", "--class", "rad")
    assert "There is no class of the task closed named 'rad'; did you mean red?" in said
    assert "did you mean closed" in refused(*words, "--task", "close")
    assert "its name must end in .png" in refused(*words, "--out", tmp_path / "heat.jpg")
    assert "There is no folder" in refused(*words, "--out", tmp_path / "none" / "heat.png")
    before = file.read_bytes()
    assert "the picture itself" in refused(*words, "--out", file)
    assert file.read_bytes() == before
    (tmp_path / "text.png").write_text("?")
    assert "is not a picture" in refused("explain", tmp_path / "text.png", "--model", model)
    assert "There is no model" in refused("explain", file, "--model", tmp_path / "none")
    with pytest.raises(RivalsError, match="There is no class named"):
        rivals.Model(model).explain(file, label="read")


def test_a_class_of_several_tasks_is_asked_for_with_its_task(
    tmp_path: Path, refused: Refused
) -> None:
    opened = rivals.Model(tmp_path / "model")
    for first, (name, classes) in enumerate([("one", "ab"), ("two", "cd"), ("three", "cd")]):
        labels = ["red", "blue"] * 4
        images = np.stack([picture(each, 10 * first + n) for n, each in enumerate(labels)])
        images = images if name == "one" else 255 - images
        opened.learn((images, list(classes) * 4), name, ancestor="tiny", size=SIDE, new=0)
    file = tmp_path / "a.png"
    Image.fromarray(picture("red", 50)).save(file)
    assert opened.predict(file).task == "one"
    said = refused("explain", file, "--model", tmp_path / "model", "--class", "c")
    assert "The class 'c' is in the tasks two, three; choose one with --task." in said
    found = opened.explain(file, "two", label="c")
    assert (found.task, found.label) == ("two", "c")
    found = opened.explain(file, label="b")
    assert found.task == found.answer.task == "one"
    other = str(dataclasses.replace(found, task="two"))  # a class of another task than the answer's
    assert other.startswith("Among the classes of the task two: ")
    assert other.lower().endswith(str(found).lower())
