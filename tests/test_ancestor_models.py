"""Models that start from an ancestor: few pictures in closed form, many by new units."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from PIL import Image

import rivals
from rivals.ancestors import SHIPPED
from rivals.ancestors import ancestor as ancestor_files
from rivals.ancestors.ancestor import PLACE, shipped
from rivals.cli.main import main
from rivals.deploy.exporting import export_from
from rivals.io.files import digest
from rivals.model import defaults, task_file
from rivals.model.checking import check
from rivals.model.folder import ModelFolder
from rivals.model.history import ModelHistory
from rivals.model.manifest import NAME, checksum
from rivals.nn import shared_weight

Pictures = tuple[NDArray[np.uint8], list[str]]


def pictures(count: int, seed: int = 0, colours: tuple[str, ...] = ("red", "green")) -> Pictures:
    """Noisy pictures, one channel of which is brighter."""
    chance = np.random.default_rng(seed)
    labels = [colours[number % len(colours)] for number in range(count)]
    images = chance.integers(0, 160, (count, 32, 32, 3), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[..., ("red", "green", "blue").index(label)] += 60
    return images, labels


def files(model: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (model / "tasks").iterdir()}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_card_says_what_it_is(name: str) -> None:
    ancestor = shipped(name)
    card, weights = ancestor.card, sum(
        tensor.numel() for key, tensor in ancestor.tensors.items() if key.endswith(".weight")
    )  # fmt: skip
    assert card["weights"] == weights <= {"tiny": 120_000, "small": 600_000}[name]
    assert (PLACE / f"{name}.safetensors").stat().st_size <= 1_200_000
    for key in ("trained_on", "taught_by", "terms", "epochs", "seconds", "command", "accuracy"):
        assert card[key]
    network = ancestor.network(8)
    assert network.widths == tuple(8 * width for width in card["widths"])


def test_few_pictures_are_learned_in_closed_form(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    learned = model.learn(pictures(40), "colours", ancestor="tiny")
    assert learned.accuracy > 90
    assert learned.facts.held == learned.facts.images == 40  # cross-validated
    assert learned.facts.steps == 0
    assert learned.facts.bytes < 40_000  # no weights
    assert model.test(pictures(40, seed=1)).accuracy > 90


def test_many_pictures_get_new_units_if_they_are_better(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    learned = model.learn(pictures(60), "colours", ancestor="tiny", new=1, epochs=2)
    assert learned.facts.steps > 0
    assert learned.facts.bytes > 150_000  # its own weights
    winners = ModelFolder.open(tmp_path / "m").winners("colours")
    assert all(unit > 0 for layer in winners for unit in layer)
    half = model.learn(pictures(60, 2), "again", new=0.5, epochs=1)
    assert half.facts.bytes < learned.facts.bytes


def test_new_units_are_not_kept_where_they_are_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "FEWEST_NEW", 1)  # so that both are tried
    images, labels = pictures(60)
    model = rivals.Model(tmp_path / "m")
    monkeypatch.setattr("rivals.model.defaults.LR", 1e-9)  # new units learn nothing
    learned = model.learn((images, labels), "colours", ancestor="tiny", epochs=1)
    assert learned.facts.steps == 0
    assert learned.accuracy > 90


def test_tasks_keep_every_bit_and_can_be_dropped_and_refined(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    images = pictures(6)[0]
    model.learn(pictures(30), "one", ancestor="tiny")
    before = [answer.top(2) for answer in model.predict(list(images), task="one")]
    old = files(tmp_path / "m")
    model.learn(pictures(30, 1, ("green", "blue")), "two")
    assert old.items() <= files(tmp_path / "m").items()
    model.learn(pictures(30, 2, ("blue", "red")), "three", new=1, epochs=1)
    assert [answer.top(2) for answer in model.predict(list(images), task="one")] == before
    model.drop("two")
    assert [answer.top(2) for answer in model.predict(list(images), task="one")] == before
    refined = model.learn(pictures(30, 3), "one", again=True, epochs=1)
    assert refined.task == "one"
    assert [task.name for task in model.tasks] == ["one", "three"]


def test_an_export_carries_what_it_needs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from rivals.edge.artefact import load

    model = rivals.Model(tmp_path / "m")
    model.learn(pictures(30), "one", ancestor="tiny", size=32)
    model.export("one", tmp_path / "one.onnx")
    images = pictures(6, 4)[0]
    found = load(tmp_path / "one.onnx").answers(np.moveaxis(images, 3, 1))
    assert [a.label for a in found] == [a.label for a in model.predict(list(images))]


def test_grey_models(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    images, labels = pictures(40)
    images[np.array(labels) == "red"] //= 2
    learned = model.learn((images, labels), "brightness", ancestor="tiny", grey=True)
    assert learned.accuracy > 90
    weights = model.ticket("brightness").network.state_dict()
    assert next(iter(weights.values())).shape[1] == 1


def test_what_does_not_go_together(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    with pytest.raises(rivals.RivalsError, match="There is no ancestor named 'tinny'"):
        model.learn(pictures(10), "one", ancestor="tinny")
    with pytest.raises(rivals.RivalsError, match="do not go together"):
        model.learn(pictures(10), "one", ancestor="tiny", network="mlp")
    with pytest.raises(rivals.RivalsError, match="new is 2, but is a share from 0 to 1"):
        model.learn(pictures(10), "one", ancestor="tiny", new=2)
    with pytest.raises(rivals.RivalsError, match="size is 8, but the ancestor 'tiny' needs at"):
        model.learn(pictures(10), "one", ancestor="tiny", size=8)
    assert not (tmp_path / "m").exists()
    model.learn(pictures(20), "one", ancestor="tiny", size=16)
    with pytest.raises(rivals.RivalsError, match="ancestor none is for a new model"):
        model.learn(pictures(20, 1), "two", ancestor="none")


# What comes from elsewhere -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one task in closed form and one with units of its own. Only to be copied."""
    model = rivals.Model(tmp_path_factory.mktemp("good") / "m")
    model.learn(pictures(20), "one", ancestor="tiny", size=16)
    model.learn(pictures(20, 1), "two", new=0.5, epochs=1)
    return model.path


@pytest.fixture
def foreign(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "m"))


def rewrite(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change model.json, under the right checksum."""
    content = json.loads((model / NAME).read_text())
    change(content)
    content["sha256"] = checksum(content)
    (model / NAME).write_text(json.dumps(content))


UNKNOWN = "which this version of rivals does not have"
SHAPE = "does not have the shape of its ancestor"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["ancestor"].update(sha256="0" * 64), UNKNOWN),
        (lambda c: c["ancestor"].update(name="huge"), UNKNOWN),
        (lambda c: c["ancestor"].update(name="small"), UNKNOWN),
        (lambda c: c["ancestor"].update(name="../../etc/passwd"), UNKNOWN),
        (lambda c: c["ancestor"].update(name="\x1b[31mtiny"), "at ancestor/name"),
        (lambda c: c["ancestor"].update(path="/etc/passwd"), "at ancestor/path"),
        (lambda c: c.update(ancestor="tiny"), "at ancestor"),
        (lambda c: c.update(ancestor=None), "does not fit"),
        (lambda c: c["network"].update(widths=[16, 32, 48, 64, 88]), SHAPE),
        (lambda c: c["network"].update(name="mlp"), SHAPE),
        (lambda c: c["network"].update(widths=[8192] * 8), "weights for a task"),
        (lambda c: c.update(input_shape=[3, 8, 8]), "does not take pictures of 3 × 8 × 8"),
        (lambda c: c.update(input_shape=[3, 8, 256]), "does not take pictures of 3 × 8 × 256"),
        (lambda c: c.update(input_shape=[1, 16, 16]), "does not fit its network"),
    ],
    ids=[
        "altered", "missing", "another", "path", "escape", "more", "word", "none", "widths",
        "network", "absurd", "small", "flat", "grey",
    ],
)  # fmt: skip
def test_ancestors_that_do_not_fit(
    foreign: Path, refused: Callable[..., str], change: Callable[[dict[str, Any]], object],
    said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rewrite(foreign, change)
    Image.fromarray(pictures(1)[0][0]).save(tmp_path / "new.png")
    for words in (["info", foreign], ["predict", tmp_path / "new.png", "--model", foreign],
                  ["drop", "one", "--model", foreign]):  # fmt: skip
        assert said in refused(*words), words
    with pytest.raises(SystemExit) as end:
        main(["check", str(foreign), "--json"])
    assert end.value.code == 1
    damaged = [p["said"] for p in json.loads(capsys.readouterr().out)["parts"] if
               p["state"] == "damaged"]  # fmt: skip
    assert said in " ".join(damaged)


def test_a_whole_model_with_an_ancestor(good: Path) -> None:
    report = check(good)
    assert report.whole
    assert "ticket of 'two'" in [part.part for part in report.parts]


def test_every_byte_of_a_model_with_an_ancestor_counts(foreign: Path) -> None:
    for path in (foreign / NAME, *sorted((foreign / "tasks").iterdir())):
        data = path.read_bytes()
        path.write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
        assert not check(foreign).whole
        path.write_bytes(data)


TINY = safetensors.torch.load_file(PLACE / "tiny.safetensors")


@pytest.mark.parametrize(
    ("tensors", "facts", "said"),
    [
        ({}, {"widths": [10**6] * 5}, "does not fit its card"),
        ({}, {"widths": [20]}, "does not fit its card"),
        ({}, {"widths": []}, "describes no ancestor"),
        ({}, {"widths": [-1] * 5}, "describes no ancestor"),
        ({}, {"widths": "all"}, "is damaged"),
        ({}, {"architecture": "os:system"}, "describes no ancestor"),
        ({}, {"sha256": "0" * 64}, "is not the one that"),
        ({"within": torch.zeros(3, 3)}, {}, "within does not fit its card"),
        ({"within": None}, {}, "within does not fit its card"),
        ({"layer0.weight": None}, {}, "layer0.weight does not fit its card"),
        ({"layer1.weight": torch.zeros(2**20, 1, 9)}, {}, "layer1.weight does not fit its card"),
        ({"layer1.norm.scale": torch.zeros(32, dtype=torch.int64)}, {}, "layer1.norm.scale does"),
        ({"layer1.norm.scale": torch.full((32,), torch.nan)}, {}, "not finite"),
    ],
)  # fmt: skip
def test_files_of_an_ancestor_that_do_not_fit(
    tensors: dict[str, Any], facts: dict[str, Any], said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str],
) -> None:  # fmt: skip
    """A damaged installation is one sentence, and makes no model."""
    left = {key: value for key, value in {**TINY, **tensors}.items() if value is not None}
    data = safetensors.torch.save(left)
    card = {**json.loads((PLACE / "tiny.json").read_text()), "sha256": digest(data), **facts}
    (tmp_path / "tiny.safetensors").write_bytes(data)
    (tmp_path / "tiny.json").write_text(json.dumps(card))
    for name in ("red", "green"):
        (tmp_path / "things" / name).mkdir(parents=True)
        for number, image in enumerate(pictures(3)[0]):
            Image.fromarray(image).save(tmp_path / "things" / name / f"{number}.png")
    monkeypatch.setattr(ancestor_files, "PLACE", tmp_path)
    shipped.cache_clear()
    try:
        words = ("--model", tmp_path / "m", "--ancestor", "tiny")
        assert said in refused("learn", tmp_path / "things", *words)
    finally:
        shipped.cache_clear()
    assert not (tmp_path / "m").exists()


def many(good: Path, place: Path, count: int) -> Path:
    """A model of many tasks that use nothing but the ancestor."""
    (place / "tasks").mkdir(parents=True)
    content = json.loads((good / NAME).read_text())
    entry = content["tasks"][0]
    tensors, tasks = safetensors.torch.load_file(good / "tasks" / entry["file"]), []
    for number in range(count):
        tensors["head.bias"][0] = number / 1000
        file, sha256, data = task_file.encode(tensors)
        (place / "tasks" / file).write_bytes(data)
        facts = {"name": f"t{number}", "file": file, "sha256": sha256, "bytes": len(data)}
        tasks.append({**entry, **facts})
    content |= {"tasks": tasks, "history": list(ModelHistory.begin(["0" * 64] * count).lines)}
    (place / NAME).write_text(json.dumps({**content, "sha256": checksum(content)}))
    return place


def test_many_small_tasks_take_no_square_of_time(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ticket once looked at the claims of all tasks: 18 MB of folder took minutes."""
    fill, calls = shared_weight._fill, []
    monkeypatch.setattr(shared_weight, "_fill", lambda *a: (calls.append(1), fill(*a)))
    model = rivals.Model(many(good, tmp_path / "m", 30))
    assert model.predict(pictures(1)[0][0]).task.startswith("t")
    assert len(calls) <= 30 * 5  # layers


def test_tickets_that_do_not_fit_into_memory(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of some kilobytes stands for a ticket of megabytes."""
    model = many(good, tmp_path / "m", 20)
    size = sum(file.stat().st_size for file in (model / "tasks").iterdir())
    monkeypatch.setattr("rivals.model.folder.available_memory", lambda: 10 * size)
    with pytest.raises(rivals.RivalsError, match=r"with the 20 tasks of .* bytes of memory, but"):
        rivals.Model(model).predict(pictures(1)[0][0])
    with pytest.raises(rivals.RivalsError, match=r"with the 20 tasks of .* bytes of memory, but"):
        export_from(model, tmp_path / "all.onnx", all_tasks=True)
    rivals.Model(model).drop("t3")  # which needs one ticket at a time


def test_tasks_begin_with_the_ancestor_not_with_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = rivals.Model(tmp_path / "m")
    model.learn(pictures(20), "one", ancestor="tiny")
    model.learn(pictures(20, 1), "two")
    assert [task.inherited_from for task in model.tasks] == [(), ()]
    assert model.drop("one").heirs == []
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "m")])
    assert "began with the ancestor tiny" in " ".join(capsys.readouterr().out.split())


def test_the_screen_says_how_a_closed_form_is_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = pictures(12)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "things" / label
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    words = ["--model", str(tmp_path / "m"), "--ancestor", "small"]
    with pytest.raises(SystemExit):
        main(["learn", str(tmp_path / "things"), *words])
    assert "each is tested without having been learned" in " ".join(capsys.readouterr().out.split())


def test_the_page_knows_its_ancestors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--model", str(tmp_path / "m"), "--ancestor", "smal"])
    assert end.value.code == 2
    assert "There is no ancestor named 'smal'; did you mean small?" in capsys.readouterr().err


def test_a_head_in_closed_form_is_as_sure_as_it_may_be(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    noise = np.random.default_rng(0).integers(0, 256, (80, 32, 32, 3), dtype=np.uint8)
    model.learn((noise[:40], ["a", "b"] * 20), "nothing", ancestor="small")  # there is none
    sure = [answer.confidence for answer in model.predict(list(noise[40:]))]
    assert np.mean(sure) < 0.7
    model.learn(pictures(40), "colours")
    sure = [a.confidence for a in model.predict(list(pictures(20, 1)[0]), task="colours")]
    assert np.mean(sure) > 0.9
