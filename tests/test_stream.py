"""Frames of one stream: the filter that pools them, `Model.watch`, `predict --stream`, one picture
added."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import rivals
from rivals.cli.predict_command import ArtefactPredictor, StreamPredictor
from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.model.checking import check
from rivals.naming.frame_filter import CAMERA, Chances, Evidence, FrameFilter, difference, update
from rivals.web.open_model import MOST_STREAMS, OpenModel
from watched import png, shapes

CLASSES = (("fruit", ("apple", "lemon")), ("tools", ("saw", "axe", "nail")))
SIZES = [2, 3]


def logs(*shares: float) -> np.ndarray:
    return np.log(np.array(shares) / sum(shares))


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tasks in closed form: bars, and colours."""
    model = rivals.Model(tmp_path_factory.mktemp("stream") / "model")
    model.learn(shapes(0, 15), "bars", new=0, ancestor="tiny")
    chance = np.random.default_rng(1)
    colours = chance.integers(0, 60, (20, 48, 48, 3), dtype=np.uint8)
    colours[::2, ..., 0] += 150
    colours[1::2, ..., 2] += 150
    model.learn((colours, ["red", "blue"] * 10), "colours", new=0)
    return model.path


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> rivals.Model:
    shutil.copytree(taught, tmp_path / "model")
    return rivals.Model(tmp_path / "model")


# The filter ---------------------------------------------------------------------------------------


def by_hand(frames: list[np.ndarray], chances: Chances) -> np.ndarray:
    """The forward step of a hidden Markov model with its whole matrix of transitions."""
    kinds, classes, belief = len(chances.label), sum(SIZES), None
    task = np.repeat(np.arange(len(SIZES)), SIZES)
    whole = np.zeros((kinds * classes, kinds * classes))
    for kind in range(kinds):
        for before in range(classes):
            for after in range(classes):
                chance = float(before == after) * (1 - chances.label[kind])
                if task[before] == task[after]:
                    chance += chances.label[kind] / SIZES[task[before]]
                whole[kind * classes + before, kind * classes + after] = chance
    assert np.allclose(whole.sum(1), 1)
    for number, frame in enumerate(frames):
        said = classes * np.tile(np.exp(frame), kinds)
        weight = 1.0
        if number:
            weight = min(1.0, chances.novelty * difference(frame, frames[number - 1]))
        begins = said / (kinds * classes)
        if belief is None:
            belief = begins
        else:
            goes_on = (belief @ whole) * said**weight
            belief = (1 - chances.change) * goes_on + chances.change * begins
        belief = belief / belief.sum()
    assert belief is not None
    return belief.reshape(kinds, classes)


@pytest.mark.parametrize("chances", [CAMERA, Chances(0.2, (0.3,), 1.0), Chances(1.0, (0.5, 0.1))])
def test_the_filter_is_a_hidden_markov_model(chances: Chances) -> None:
    frames = [logs(*row) for row in np.random.default_rng(0).dirichlet(np.ones(5), 6)]
    belief, last = None, None
    for frame in frames:
        weight = 1.0 if last is None else min(1.0, chances.novelty * difference(frame, last))
        belief, last = update(belief, frame, SIZES, weight, chances), frame
    assert belief is not None
    assert np.allclose(belief, by_hand(frames, chances))


def test_one_frame_is_answered_as_a_picture() -> None:
    answer = FrameFilter()(Evidence(CLASSES, logs(1, 2, 9, 3, 5)))
    assert [each.label for each in answer.choices] == ["saw", "nail", "axe", "lemon", "apple"]
    assert [each.task for each in answer.top(4)] == ["tools", "tools", "tools", "fruit"]
    assert answer.confidence == pytest.approx(9 / 20)
    many = (("many", tuple(map(str, range(300)))),)
    assert len(FrameFilter()(Evidence(many, np.log(np.arange(1, 301) / 300))).choices) == 100


def test_frames_of_one_thing_outweigh_one_that_is_wrong() -> None:
    together = FrameFilter()
    for _ in range(3):
        together(Evidence(CLASSES, logs(1, 8, 2, 3, 1)))
        together(Evidence(CLASSES, logs(2, 7, 1, 1, 3)))
    assert together(Evidence(CLASSES, logs(1, 3, 4, 1, 1))).label == "lemon"
    labels = [together(Evidence(CLASSES, logs(1, 1, 30, 2, 1))).label for _ in range(20)]
    assert (labels[0], labels[-1]) == ("lemon", "saw")  # the thing has changed


def test_a_frame_that_says_the_same_again_says_nothing_new() -> None:
    together, frame = FrameFilter(), Evidence(CLASSES, logs(1, 4, 2, 2, 1))
    answers = [together(frame) for _ in range(200)]
    assert answers[-1].label == "lemon"
    assert answers[-1].confidence < 0.85
    assert difference(frame.log_probabilities, frame.log_probabilities) == 0
    assert difference(logs(1, 1, 1, 1, 1), logs(1, 1, 1, 1, 1)) == 1  # nothing is said at all


def test_things_of_one_task_name_it_together() -> None:
    """Each frame alone is for the wrong task; all have some share in the right one."""
    frames = [logs(5, 1, 4, 1, 1), logs(1, 5, 1, 4, 1), logs(5, 1, 1, 1, 4), logs(1, 5, 4, 1, 1)]
    together = FrameFilter(chances=Chances(change=0.0, label=(1.0,)))
    alone = [FrameFilter()(Evidence(CLASSES, each)).task for each in frames]
    assert alone == ["fruit"] * 4
    assert together(Evidence(CLASSES, frames[0])).task == "fruit"
    counts = [logs(4, 1, 5, 5, 1), logs(1, 4, 1, 5, 5), logs(4, 1, 5, 1, 5)]
    for frame in counts:
        answer = together(Evidence(CLASSES, frame))
    assert answer.task == "tools"


def test_one_strange_frame_is_not_a_stranger() -> None:
    together = FrameFilter(reject=0.05)
    known, strange = logs(9, 1, 1, 1, 1), logs(1, 1, 2, 1, 9)
    for number in range(6):
        assert not together(Evidence(CLASSES, known + 0.5 * (number % 2))).rejected
    flags = [
        together(Evidence(CLASSES, (known, strange)[number % 2], True)).rejected
        for number in range(6)
    ]
    assert (flags[0], flags[-1]) == (False, True)
    assert FrameFilter(reject=0.05)(Evidence(CLASSES, known, True)).rejected


def test_another_model_begins_anew() -> None:
    together = FrameFilter()
    for _ in range(5):
        together(Evidence(CLASSES, logs(9, 1, 1, 1, 1)))
    more = (*CLASSES, ("new", ("a", "b")))
    assert together(Evidence(more, logs(1, 1, 1, 1, 1, 6, 3))).label == "a"


def test_evidence_of_impossible_classes_is_finite() -> None:
    together = FrameFilter()
    certain = rivals.Answer((rivals.Choice("a", "t", 1.0), rivals.Choice("b", "t", 0.0)))
    other = rivals.Answer((rivals.Choice("b", "t", 1.0), rivals.Choice("a", "t", 0.0)))
    for each in (certain, certain, other, other, other):
        answer = together(Evidence.of_answer(each))
        assert np.isfinite(answer.confidence)
    assert answer.label == "b"


# A model ------------------------------------------------------------------------------------------


def test_watch_answers_every_frame(model: rivals.Model) -> None:
    images, labels = shapes(5, 4)
    first = [image for image, label in zip(images, labels, strict=True) if label == "upright"]
    answers = model.watch(iter(first))
    assert next(answers).label == model.predict(first[0]).label
    assert [answer.label for answer in answers] == ["upright"] * 3
    given = next(model.watch(first, task="colours"))
    alone = model.predict(first[0], "colours")
    assert (given.label, given.task) == (alone.label, "colours")
    assert given.confidence == pytest.approx(alone.confidence, abs=1e-5)
    noise = np.zeros((48, 48, 3), np.uint8)
    assert [a.rejected for a in model.watch([noise, noise], reject=0.05)] == [True, True]
    with pytest.raises(RivalsError, match="task"):
        model.watch([], task="nothing")  # before a frame is asked for
    with pytest.raises(RivalsError, match="There is no picture"):
        list(model.watch(["missing.png"]))


def predict(*words: str, given: str = "") -> tuple[list[dict[str, Any]], str, int]:
    command = [sys.executable, "-m", "rivals", "predict", "--stream", "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, input=given, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr, done.returncode


def test_predict_takes_files_as_one_stream(model: rivals.Model, tmp_path: Path) -> None:
    images, labels = shapes(6, 6)
    names = []
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        if label == "level":
            names.append(str(tmp_path / f"{number}.npy.png"))
            from PIL import Image

            Image.fromarray(image).save(names[-1])
    (tmp_path / "broken.png").write_bytes(b"nothing")
    names.insert(2, str(tmp_path / "broken.png"))
    rows, _, status = predict("-", "--model", str(model.path), given="\n".join(names))
    assert status == 2
    assert [row["image"] for row in rows] == names
    assert "error" in rows.pop(2)
    wanted = list(model.watch([name for name in names if "broken" not in name]))
    assert [row["label"] for row in rows] == [each.label for each in wanted]
    assert [row["confidence"] for row in rows] == pytest.approx(
        [each.confidence for each in wanted], abs=1e-5
    )


@pytest.mark.parametrize("task", ["bars", None])
def test_an_exported_file_answers_streams(
    task: str | None, model: rivals.Model, tmp_path: Path
) -> None:
    """Of one task, and of all of them together."""
    for needed in ("onnxruntime", "onnxscript"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: rivals[export]")
    model.export(task, tmp_path / "model.onnx", all_tasks=task is None)
    opened = ArtefactPredictor(tmp_path / "model.onnx", None, None, 1, None, False)
    images = shapes(7, 3)[0][::3]
    pixels = np.stack([to_pixels(each, opened.shape) for each in images])
    wanted = list(model.watch(images, task=task))
    found = StreamPredictor(opened).answers(pixels)
    assert [each.label for each in found] == [each.label for each in wanted]
    sure = [each.confidence for each in wanted]
    assert [each.confidence for each in found] == pytest.approx(sure, abs=1e-5)


# One picture --------------------------------------------------------------------------------------


def test_a_picture_is_added_and_known_at_once(model: rivals.Model) -> None:
    image = np.zeros((48, 48, 3), np.uint8)
    image[8:40, 8:40, 1] = 220
    before = model.opened().mark("bars"), model.predict(image).label
    assert before[1] != "green"
    facts = model.add_picture(image, "green", "colours")
    assert (facts.classes, facts.images, facts.refined) == (("blue", "red", "green"), 21, 1)
    assert model.predict(image).label == "green"
    again = rivals.Model(model.path)  # as it is stored
    assert again.predict(image).confidence == pytest.approx(model.predict(image).confidence)
    assert again.opened().mark("bars") == before[0]
    assert check(model.path).whole
    assert model.add_picture(image, "green").images == 22  # one task knows it


def test_adding_is_what_all_pictures_together_give(model: rivals.Model) -> None:
    """The mean of a class becomes that of all its pictures, to the 16 bits that are stored."""
    method = model.opened().method
    kept = method.known["colours"].kept
    assert kept is not None
    image, place = np.full((48, 48, 3), 90, np.uint8), 1
    with torch.no_grad():
        preparation = method.known["colours"].preprocessing
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None]
        features = method.network.learning(False).shared_features(preparation(pixels))[0]
    count = int(kept["counts"][place])
    wanted = (kept["means"][place].double() * count + features.double()) / (count + 1)
    model.add_picture(image, "red")
    now = rivals.Model(model.path).opened().method.known["colours"].kept
    assert now is not None
    assert int(now["counts"][place]) == count + 1
    assert torch.allclose(now["means"][place].double(), wanted, rtol=2e-3, atol=1e-4)
    assert torch.equal(now["means"][0], kept["means"][0])


def test_what_cannot_be_added_is_refused(model: rivals.Model, tmp_path: Path) -> None:
    image, before = np.zeros((48, 48, 3), np.uint8), model.tasks
    for label, task, words in [
        ("green", None, "say which one is meant"), ("a\x1b[2J", "bars", "cannot be shown"),
        ("x" * 500, "bars", "500 letters"), ("green", "nothing", "task"),
    ]:  # fmt: skip
        with pytest.raises(RivalsError, match=words):
            model.add_picture(image, label, task)
    with pytest.raises(RivalsError, match="There is no model"):
        rivals.Model(tmp_path / "new").add_picture(image, "a")
    assert rivals.Model(model.path).tasks == before
    trained = rivals.Model(tmp_path / "trained")
    small = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    trained.learn((small, ["a", "b"] * 6), "noise", epochs=1, ancestor="none")
    with pytest.raises(RivalsError, match="not kept as statistics"):
        trained.add_picture(small[0], "a")
    assert trained.predict(small[0]).task == "noise"


# The page -----------------------------------------------------------------------------------------


def test_frames_of_a_camera_of_the_page_answer_together(model: rivals.Model) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed: rivals[web]")
    served = OpenModel(model.path)
    images, labels = shapes(8, 5)
    frames = [image for image, label in zip(images, labels, strict=True) if label == "level"]
    wanted = [answer.confidence for answer in model.watch(frames, reject=0.05)]
    found = [served.answer(png(image), "frame", None, 0.05, "camera 1") for image in frames]
    assert [each["confidence"] for each in found] == pytest.approx(wanted, abs=1e-5)
    alone = served.answer(png(frames[0]), "frame", None, 0.05)
    other = served.answer(png(frames[0]), "frame", None, 0.05, "camera 2")
    assert alone["confidence"] == pytest.approx(other["confidence"], abs=1e-5)
    for number in range(100):  # whoever asks under many names takes no memory
        served.answer(png(frames[0]), "frame", None, 0.05, f"many {number}")
    assert len(served._streams) == MOST_STREAMS


def test_the_camera_of_the_page_is_one_stream_for_as_long_as_it_is_on(
    browser: Any, model: rivals.Model
) -> None:
    from page_tabs import Tab
    from served import Served

    server = Served(model.path)
    try:
        tab = Tab(browser, server, permissions=["camera"])
        tab.open(server, "try")
        streams: list[str] = []
        for turn in (1, 2):
            tab.page.locator("#try-input").get_by_role("button", name="Camera").click()
            tab.page.locator("#try .choices li").first.wait_for()
            tab.page.wait_for_timeout(700)  # a few frames more
            asked = [httpx.URL(url).params for url in tab.asked if "/api/answer" in url]
            found = list(dict.fromkeys(each["stream"] for each in asked))
            assert len(found) == turn
            streams = found
            tab.page.locator("#try-input").get_by_role("button", name="Draw").click()
        assert len(set(streams)) == 2
        assert tab.troubles == []
        tab.context.close()
    finally:
        server.end()
