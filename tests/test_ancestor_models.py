"""Models that start from an ancestor: few pictures in closed form, many by new units."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import rivals
from rivals.ancestors import SHIPPED
from rivals.ancestors.ancestor import shipped
from rivals.ancestors.shipped_file import PLACE
from rivals.cli.main import main
from rivals.model import defaults
from rivals.model.folder import ModelFolder
from rivals.model.manifest import NAME
from rivals.naming.task_statistics import check_statistics
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
    assert learned.facts.bytes < 5_000  # no weights: statistics of its features
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
    with pytest.raises(rivals.RivalsError, match="new is many, but is a share"):
        model.learn(pictures(10), "one", ancestor="tiny", new="many")
    assert not (tmp_path / "m").exists()
    model.learn(pictures(20), "one", ancestor="tiny", size=16)
    with pytest.raises(rivals.RivalsError, match="ancestor=none is for a new model"):
        model.learn(pictures(20, 1), "two", ancestor="none")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda c: c["ancestor"].update(sha256="0" * 64), "which this version of rivals does not"),
        (lambda c: c["ancestor"].update(name="huge"), "which this version of rivals does not"),
        (
            lambda c: c["network"]["widths"].append(c["network"]["widths"].pop() * 2),
            "the shape of its",
        ),
    ],
    ids=["altered", "missing", "shape"],
)
def test_ancestors_that_do_not_fit(tmp_path: Path, change: object, found: str) -> None:
    from rivals.model.manifest import checksum

    model = rivals.Model(tmp_path / "m")
    model.learn(pictures(20), "one", ancestor="tiny")
    path = tmp_path / "m" / NAME
    content = json.loads(path.read_text())
    change(content)  # type: ignore[operator]
    content["sha256"] = checksum(content)
    path.write_text(json.dumps(content))
    with pytest.raises(rivals.RivalsError, match=found):
        rivals.Model(tmp_path / "m").predict(pictures(2)[0][0])


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


def test_a_new_model_starts_from_the_ancestor_small(tmp_path: Path) -> None:
    found = {}
    for name, options in {
        "default": {}, "network": {"network": "mlp"}, "none": {"ancestor": "none"},
    }.items():  # fmt: skip
        rivals.Model(tmp_path / name).learn(pictures(12), "one", epochs=1, **options)
        ancestor = ModelFolder.open(tmp_path / name).description.ancestor
        found[name] = ancestor.name if ancestor else None
    assert found == {"default": "small", "network": None, "none": None}


def test_more_pictures_of_a_closed_form_are_counted_exactly(tmp_path: Path) -> None:
    """Learned in two parts or at once: the same statistics, but for rounding."""
    images, labels = pictures(60)
    parts, whole = rivals.Model(tmp_path / "parts"), rivals.Model(tmp_path / "whole")
    parts.learn((images[:30], labels[:30]), "one", ancestor="tiny")
    refined = parts.learn((images[30:], labels[30:]), "one", again=True)
    whole.learn((images, labels), "one", ancestor="tiny")
    assert refined.kept
    assert refined.facts.images == 60
    assert refined.facts.refined == 1
    kept = [
        ModelFolder.open(model.path).method.known["one"].kept for model in (parts, whole)
    ]  # fmt: skip
    assert kept[0] is not None
    assert kept[1] is not None
    assert kept[0]["counts"].tolist() == kept[1]["counts"].tolist() == [30, 30]
    assert torch.allclose(kept[0]["means"].float(), kept[1]["means"].float(), rtol=2e-3, atol=1e-3)


def test_one_discriminant_names_tasks_and_forgets_the_dropped(tmp_path: Path) -> None:
    with_all, without = rivals.Model(tmp_path / "all"), rivals.Model(tmp_path / "few")
    data = {"first": ("red", "green"), "second": ("blue", "green"), "third": ("blue", "red")}
    for number, (name, colours) in enumerate(data.items()):
        with_all.learn(pictures(30, number, colours), name, ancestor="tiny")
        if name != "second":
            without.learn(pictures(30, number, colours), name, ancestor="tiny")
    with_all.drop("second")
    asked = list(pictures(12, 9, ("red", "green", "blue"))[0])
    answers = [model.predict(asked) for model in (with_all, without)]
    assert [a.top(2) for a in answers[0]] == [a.top(2) for a in answers[1]]


def test_features_are_computed_once_for_all_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = rivals.Model(tmp_path / "m")
    for number in range(3):
        model.learn(pictures(20, number), f"task {number}", ancestor="tiny")
    ran = []
    body = model.opened().method.shared_body
    monkeypatch.setattr(body, "forward", lambda x, f=body.forward: ran.append(len(x)) or f(x))
    model.predict(list(pictures(5, 9)[0]))
    assert ran == [5]


def test_statistics_of_no_pictures_are_refused(tmp_path: Path) -> None:
    model = rivals.Model(tmp_path / "m")
    model.learn(pictures(20), "one", ancestor="tiny")
    opened = ModelFolder.open(tmp_path / "m")
    kept = {name: t.numpy() for name, t in (opened.method.known["one"].kept or {}).items()}
    check_statistics(kept)
    for name, value in (("counts", 0), ("prior", -1.0), ("scale", 0.0), ("temperature", 0.0)):
        changed = {**kept, name: np.full_like(kept[name], value)}
        with pytest.raises(ValueError, match="has statistics of no pictures"):
            check_statistics(changed)


def test_logistic_regression_on_pixels_is_kept_where_it_is_better(tmp_path: Path) -> None:
    """Which of two faint patterns lies under noise: features of an ancestor do not show it."""
    chance = np.random.default_rng(3)
    pattern = chance.choice([-1.0, 1.0], (8, 8)).repeat(6, 0).repeat(6, 1)[:, :, None]
    labels = ["up", "down"] * 60
    signs = np.array([1 if label == "up" else -1 for label in labels])[:, None, None, None]
    noise = chance.normal(128, 55, (120, 48, 48, 3))
    images = np.clip(noise + 7 * signs * pattern, 0, 255).astype(np.uint8)
    model = rivals.Model(tmp_path / "m")
    learned = model.learn((images[:80], labels[:80]), "patterns", ancestor="tiny")
    assert learned.advice is not None
    assert learned.advice.kept == "pixels"
    assert model.test((images[80:], labels[80:])).accuracy > 85
    assert model.ticket("patterns").network(torch.zeros(1, 3, 48, 48)).shape == (1, 2)
    again = rivals.Model(tmp_path / "m").test((images[80:], labels[80:])).accuracy
    assert again == model.test((images[80:], labels[80:])).accuracy


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three tasks with units of their own. Only to be read."""
    model = rivals.Model(tmp_path_factory.mktemp("trained") / "m")
    for number in range(3):
        options = {} if number else {"ancestor": "tiny", "size": 16}
        model.learn(pictures(20, number), f"t{number}", new=0.3, epochs=1, **options)
    return model.path


def test_many_small_tasks_take_no_square_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ticket once looked at the claims of all tasks: 18 MB of folder took minutes."""
    fill, calls = shared_weight._fill, []
    monkeypatch.setattr(shared_weight, "_fill", lambda *a: (calls.append(1), fill(*a)))
    counts = []
    for number in range(4):
        rivals.Model(tmp_path / "m").learn(
            pictures(10, number), f"t{number}", new=0, ancestor=None if number else "tiny"
        )
        calls.clear()
        rivals.Model(tmp_path / "m").predict(pictures(1)[0][0])
        counts.append(len(calls))
    assert counts[3] - counts[2] <= counts[2] - counts[1] <= counts[1]


def test_tickets_that_do_not_fit_into_memory(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file stands for a ticket of megabytes; in closed form there is no such ticket."""
    size = sum(file.stat().st_size for file in (trained / "tasks").iterdir())
    monkeypatch.setattr("rivals.model.folder.available_memory", lambda: size + 100_000)
    with pytest.raises(rivals.RivalsError, match=r"with the 3 tasks of .* bytes of memory, but"):
        rivals.Model(trained).predict(pictures(1)[0][0])
