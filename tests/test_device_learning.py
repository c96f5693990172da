"""Learning a folder: no old data, old tickets keep every bit, budgets hold, events tell it all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import room
from rivals.errors import Interrupted, RivalsError
from rivals.io.process_memory import peak_memory
from rivals.model import budgets as budget
from rivals.model.folder import ModelFolder
from rivals.model.model import Model
from rivals.model.testing import plus_minus
from teaching import WORDS, asked, folder, marks, teach

Refused = Callable[..., str]
Tree = Callable[[Path], dict[str, str]]
IMAGES, LABELS = np.arange(4 * 8 * 8).reshape(4, 8, 8), [0, 0, 1, 1]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three tasks, and the folders it learned from. Only to be read."""
    place = tmp_path_factory.mktemp("taught")
    for name, classes in (("low", (0, 1, 2)), ("mid", (3, 4)), ("high", (5, 6, 7))):
        teach(folder(place / name, classes, 60), place / "model", epochs=15)
    return place


def test_three_tasks_are_known(taught: Path) -> None:
    model = ModelFolder.open(taught / "model")
    assert [task.name for task in model.tasks] == ["low", "mid", "high"]
    assert model.task("low").classes == ("digit 0", "digit 1", "digit 2")
    assert all(task.accuracy > 85 for task in model.tasks)
    assert model.task("high").inherited_from == ("mid", "low")
    assert (taught / "model" / "model.json").stat().st_size < 6000
    new = asked(tuple(range(8)))
    answers = Model(taught / "model").predict([picture for picture, _ in new])
    owners = ["low", "low", "low", "mid", "mid", "high", "high", "high"]
    pairs = [(answer, label) for answer, (_, label) in zip(answers, new, strict=True)]
    named = [answer.task == owners[label] for answer, label in pairs]
    right = [answer.label == f"digit {label}" for answer, label in pairs]
    assert sum(named) / len(named) > 0.85
    assert sum(right) / len(right) > 0.8


def test_old_tickets_keep_every_bit_though_the_network_grows(tmp_path: Path) -> None:
    model, grown = tmp_path / "model", False
    teach(folder(tmp_path / "t0", (0, 1), 6), model, epochs=2)
    for number in range(1, 12):  # of eight rivals in a block each task takes one
        before = marks(model)
        classes = (number % 10, (number + 1) % 10)
        learned = teach(folder(tmp_path / f"t{number}", classes, 6, number), model, epochs=2)
        after = marks(model)
        assert {name: after[name] for name in before} == before
        grown = grown or any(learned.grown)
        assert min(learned.room.values()) >= 0
    assert grown
    assert max(ModelFolder.open(model).description.units) > 8


def test_learning_is_the_same_twice(taught: Path, tmp_path: Path) -> None:
    teach(taught / "low", tmp_path / "model", epochs=15)
    assert marks(tmp_path / "model")["low"] == marks(taught / "model")["low"]


def test_events_tell_it_all(taught: Path, tmp_path: Path, accepted: Callable[..., str]) -> None:
    lines = accepted(
        "learn", taught / "mid", "--model", tmp_path / "m", "--json", *WORDS[:-1], "30"
    )
    events = [json.loads(line) for line in lines.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "reading"
    assert kinds[-1] == "done"
    begins = events[kinds.index("begins")]
    assert begins["classes"] == ["digit 3", "digit 4"]
    steps = [event for event in events if event["event"] == "step"]
    assert steps[-1]["step"] == steps[-1]["steps"] == events[-1]["steps"]
    for event in steps:
        shapes = [layer["blocks"] for layer in begins["layers"]]
        assert [len(units) for units in event["winners"]] == shapes
        assert all(0 <= unit < 8 for units in event["winners"] for unit in units)
        assert all(0 < value <= 1 for value in event["confidence"])
        assert event["seconds_left"] >= 0
    assert steps[-1]["winners"] == ModelFolder.open(tmp_path / "m").winners("mid")
    assert not steps[-1]["competing"]
    assert any(event["event"] == "validation" for event in events)


def test_a_perfect_task_stops_early(taught: Path, tmp_path: Path) -> None:
    learned = teach(taught / "mid", tmp_path / "model", epochs=200)
    assert learned.facts.stopped == "no-longer-better"
    assert learned.facts.steps < 400


def test_minutes_are_kept(taught: Path, tmp_path: Path) -> None:
    """The clock of this test is of this process, which has started long ago."""
    learned = teach(taught / "low", tmp_path / "model", epochs=100_000, minutes=0.05)
    assert learned.facts.stopped in ("minutes", "no-longer-better")
    assert learned.facts.seconds < 3.5
    with pytest.raises(RivalsError, match="allow more"):
        teach(taught / "mid", tmp_path / "model", minutes=0.0001)
    assert [task.name for task in ModelFolder.open(tmp_path / "model").tasks] == ["low"]


def test_memory_is_kept(taught: Path, tmp_path: Path) -> None:
    """On a board with 512 MB: a network is trained from the default ancestor."""
    line = ["learn", taught / "low", "--model", tmp_path / "m", "--size", "48", "--epochs", "1",
            "--new", "1", "--ram", "400", "--json"]  # fmt: skip
    status, printed, told = room.run(
        [sys.executable, "-m", "rivals.cli.main", *map(str, line)], 300, room.BOARD, share=1
    )
    assert (status, told) == (0, "")
    done = json.loads(printed.splitlines()[-1])
    assert done["event"] == "done"
    assert done["peak_memory"] < 400e6


def test_a_budget_that_cannot_be_kept(taught: Path, tmp_path: Path, refused: Refused) -> None:
    said = refused("learn", taught / "low", "--model", tmp_path / "m", "--ram", "50")
    assert "learning takes at least" in said
    assert not (tmp_path / "m").exists()


def test_a_small_budget_takes_smaller_batches_then_fewer_pictures() -> None:
    least = (peak_memory() + budget.ENGINE) / 1e6
    rooms = [budget.room((3, 64, 64), 2000, least + more) for more in (80, 120, 160, 400)]
    assert [room.pictures for room in rooms] == sorted(room.pictures for room in rooms)
    assert [room.batch for room in rooms] == sorted(room.batch for room in rooms)
    assert rooms[0].pictures < 2000
    assert rooms[-1] == budget.MemoryPlan(2000, 32)
    with pytest.raises(RivalsError, match="learning takes at least"):
        budget.room((3, 64, 64), 2000, least + 20)


def test_fewer_pictures_are_told(taught: Path, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    picture = budget.COPIES * 3 * 256 * 256 / 1e6
    least = (peak_memory() + budget.ENGINE + 256 * 256 * budget.MEASURED) / 1e6
    learned = teach(taught / "low", tmp_path / "m", size=256, network="conv-small", epochs=1,
                    grey=False, ram=least + 120 * picture, listener=told.append)  # fmt: skip
    (fewer,) = [event for event in told if event["event"] == "fewer"]
    assert fewer["of"] == 180
    assert fewer["images"] == learned.facts.images + learned.facts.held < 180


def test_an_interruption_leaves_the_model(taught: Path, tmp_path: Path, tree: Tree) -> None:
    model = tmp_path / "model"
    teach(taught / "low", model)
    before = tree(model)
    for after in (0, 3, 119, 125):
        calls = iter(range(10_000))
        with pytest.raises(Interrupted):
            teach(taught / "mid", model, asked_to_stop=lambda c=calls, a=after: next(c) >= a)
        assert tree(model) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--name", "low"], "The model knows a task 'low'"),
        (["--name", "lou", "--again"], "has no task 'lou' to refine, it knows low"),
        (["--name", "low", "--again"], "its classes must be the same"),
        (["--name", "new", "--minutes", "-1"], "--minutes is -1.0"),
        (["--name", "new", "--epochs", "0"], "--epochs is 0"),
        (
            ["--name", "new", "--augment", "wild"],
            "--augment is 'wild'; use none, flip",
        ),
        (["--name", "new", "--threads", "0"], "--threads is 0"),
        (["--name", "a\nb"], "characters that cannot be shown"),
        (["--name", "../../etc"], "The task '../../etc' has a name with / or \\ or a dot"),
        (["--name", "a\\b"], "a name must not look like a path"),
        (["--name", ".hidden"], "a name must not look like a path"),
        (["--name", "new", "--size", "16"], "--size 16 is for a new model, but"),
        (["--name", "new", "--network", "lenet"], "was made with network mlp; leave it out"),
        (["--name", "new", "--seed", "1"], "--seed 1 is for a new model"),
        (["--name", "new", "--device", "tpu"], "There is no device named 'tpu'"),
    ],
)
def test_wrong_wishes(
    taught: Path, tmp_path_factory: pytest.TempPathFactory, refused: Refused, words: list[str],
    sentence: str,
) -> None:  # fmt: skip
    model = tmp_path_factory.getbasetemp() / "wishes"
    if not model.exists():
        teach(taught / "low", model)
    assert sentence in refused("learn", taught / "mid", "--model", model, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--network", "lenett"], "did you mean lenet"),
        (["--network", "os:system"], "There is no network named 'os:system'"),
        (["--size", "4000"], "--size is 4000"),
        (["--seed", "-1"], "--seed is -1"),
    ],
)
def test_wrong_wishes_for_a_new_model(
    taught: Path, tmp_path: Path, refused: Refused, words: list[str], sentence: str
) -> None:
    assert sentence in refused("learn", taught / "mid", "--model", tmp_path / "m", *words)
    assert not (tmp_path / "m").exists()


def test_a_folder_of_something_else_is_no_model(
    taught: Path, tmp_path: Path, refused: Refused, tree: Tree
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    (tmp_path / ".film.part").write_text("half a film")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / f"{'0' * 16}.safetensors").write_text("weights of somebody else")
    before = tree(tmp_path)
    assert "is not empty and holds no model" in refused(
        "learn", taught / "mid", "--model", tmp_path
    )
    said = refused("learn", taught / "mid", "--model", tmp_path / "thesis.txt")
    assert "is a file" in said
    assert tree(tmp_path) == before


def test_errors_are_events_too(taught: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rivals.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["learn", str(taught / "mid"), "--model", str(taught / "mid"), "--json"])
    assert ended.value.code == 2
    event = json.loads(capsys.readouterr().out)
    assert event["event"] == "error"
    assert "inside the folder" in event["sentence"]


def test_a_model_with_colours_stays_so(
    taught: Path, tmp_path: Path, refused: Refused, tree: Tree, accepted: Callable[..., str]
) -> None:
    model = tmp_path / "m"
    teach(taught / "low", model, grey=None, epochs=1)
    before = tree(model)
    words = ["learn", taught / "mid", "--model", model, "--epochs", "1"]
    assert "--grey is for a new model, but" in refused(*words, "--grey")
    assert tree(model) == before
    accepted(*words, "--size", "8", "--network", "mlp", "--seed", "0")  # just as it was made
    assert [task.name for task in ModelFolder.open(model).tasks] == ["low", "mid"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--epochs", "0"], "--epochs is 0, but must be at least 1"),
        (["--augment", "wild"], "--augment is 'wild'; use none, flip"),
        (["--seed", "-1"], "--seed is -1"),
    ],
)
def test_options_are_checked_before_pictures_are_read(
    tmp_path: Path, refused: Refused, words: list[str], sentence: str
) -> None:
    """The folder is not there, but that is not what is said."""
    assert sentence in refused("learn", tmp_path / "nowhere", "--model", tmp_path / "m", *words)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("images", "words", "sentence"),
    [
        (IMAGES, (LABELS,), "name of the task is of type list, but text was expected; images and"),
        (IMAGES, (np.asarray(LABELS),), "is of type ndarray, but text was expected"),
        ((IMAGES, LABELS), (), "Arrays and datasets have no name; give the task one with name="),
        ((200.0 * IMAGES, LABELS), ("task",), "'task' has float64 images with values from 0 to"),
        ((IMAGES - 1, LABELS), ("task",), "'task' has int64 images, but uint8 from 0 to 255"),
        ((IMAGES, LABELS[1:]), ("task",), "has 4 images and 3 labels"),
    ],
)
def test_arrays_that_cannot_be_learned(
    tmp_path: Path, images: Any, words: tuple[Any, ...], sentence: str
) -> None:
    with pytest.raises(RivalsError, match=sentence):
        Model(tmp_path / "m").learn(images, *words)
    assert not (tmp_path / "m").exists()


def test_accuracy_is_shown_with_its_interval(
    taught: Path, tmp_path: Path, accepted: Callable[..., str]
) -> None:
    said = accepted("learn", taught / "low", "--model", tmp_path / "m", *WORDS)
    facts = ModelFolder.open(tmp_path / "m").task("low")
    shown = plus_minus(facts.accuracy, facts.held)
    assert f"Accuracy {shown} on {facts.held} held-out pictures." in said
    assert f"Next: rivals predict PICTURE --model {tmp_path / 'm'}" in said
    assert shown in accepted("info", tmp_path / "m")


@pytest.mark.parametrize("size", [8, 17])
@pytest.mark.parametrize("network", ["conv-small", "lenet", "mlp", "resnet-small"])
def test_every_network_takes_every_size(
    taught: Path, tmp_path: Path, network: str, size: int
) -> None:
    teach(taught / "mid", tmp_path / "m", network=network, size=size, epochs=1, grey=False)
    (picture, _), *_ = asked((3,))
    assert Model(tmp_path / "m").predict(picture).task == "mid"
    shape = Model(tmp_path / "m").ticket("mid").input_shape
    assert shape == (3, size, size)


@pytest.mark.parametrize("network", ["conv-small", "lenet", "resnet-small"])
def test_every_network_can_be_taught(taught: Path, tmp_path: Path, network: str) -> None:
    teach(taught / "mid", tmp_path / "m", network=network, size=16, epochs=1, grey=False)
    model = ModelFolder.open(tmp_path / "m")
    ticket = model.ticket("mid")
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    ticket.verify(images, lambda x: model.method.masked_logits(x, "mid"))
