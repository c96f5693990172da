"""`rivals test`: accuracy with its interval, class by class, the confusion matrix, its mistakes."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from rivals.answer import Answer, Choice
from rivals.cli.test_command import confusion_table, summary
from rivals.model.contact_sheet import draw_sheet
from rivals.model.model import Model
from rivals.model.testing import find_mistakes, plus_minus, report, wilson
from teaching import digit, folder, numbers, teach

Accepted = Callable[..., str]
Refused = Callable[..., str]
Spawn = Callable[..., Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tasks, and pictures that it has not seen. Only to be read."""
    root = tmp_path_factory.mktemp("tested")
    for name, classes in (("low", (0, 1)), ("high", (6, 7, 8))):
        teach(folder(root / name, classes, 50), root / "model", epochs=10)
        folder(root / "held" / name, classes, 20, first=60)
    folder(root / "held" / "mixed", (0, 8), 20, first=80)
    return root


def test_a_process_prints_the_table_and_saves_the_plot(
    place: Path, tmp_path: Path, spawn: Spawn
) -> None:
    words = ["test", place / "held" / "high", "--model", place / "model"]
    process = spawn("-m", "rivals.cli.main", *words, "--plot", tmp_path / "confusion.png")
    printed, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    found = Model(place / "model").test(place / "held" / "high")
    rows = re.findall(
        r"│ (digit \d) +│ +(\d+) │ +(\d+) │ +([\d.]+) │ +([\d.]+) to ([\d.]+) │", printed
    )
    assert rows == [
        (each.label, str(each.images), str(each.right), f"{each.accuracy:.1f}",
         *(f"{value:.1f}" for value in each.interval))
        for each in found.per_class
    ]  # fmt: skip
    assert len(rows) == 3
    low, high = wilson(found.right, 60)
    assert (
        f"{found.accuracy:.1f} % ({low:.1f} to {high:.1f}) of 60 pictures, task unknown; "
        f"{found.given_task:.1f} % with the task given\n"
    ) in printed
    assert found.accuracy > 70
    for number, label in enumerate(found.labels, 1):
        (line,) = re.findall(rf"^ {number}: {label} +(.*?) *$", printed, re.MULTILINE)
        cells = [0 if cell == "·" else int(cell) for cell in line.split()]
        assert tuple(cells) == found.confusion[number - 1]
    with Image.open(tmp_path / "confusion.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 300


def test_json_and_csv_say_the_same(place: Path, accepted: Accepted) -> None:
    words = ["test", place / "held" / "mixed", "--model", place / "model"]
    told = json.loads(accepted(*words, "--json"))
    assert told == Model(place / "model").test(place / "held" / "mixed").to_dict()
    assert told["images"] == 40
    assert told["accuracy_task_known"] is None  # its classes are of two tasks
    assert 0 <= told["calibration_error"] <= 100
    rows = list(csv.DictReader(io.StringIO(accepted(*words, "--csv"))))
    assert [row["class"] for row in rows] == ["digit 0", "digit 8"]
    for row in rows:
        numbers = told["per_class"][row["class"]]
        assert (int(row["pictures"]), int(row["right"])) == (20, numbers["right"])
        assert float(row["accuracy"]) == pytest.approx(numbers["accuracy"], abs=1e-4)
        assert [float(row["low"]), float(row["high"])] == pytest.approx(
            numbers["interval"], abs=1e-4
        )


def test_a_plot_leaves_json_alone(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rivals.cli.main import main

    plot = tmp_path / "confusion.svg"
    words = ["test", place / "held" / "low", "--model", place / "model", "--json", "--plot", plot]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["images"] == 40
    assert printed.err == f"Saved the confusion matrix as {plot}.\n"
    assert "<svg" in plot.read_text()


def test_the_task_may_be_given(place: Path, accepted: Accepted, refused: Refused) -> None:
    words = ["test", place / "held" / "low", "--model", place / "model", "--task"]
    printed = accepted(*words, "low")
    assert re.search(r"of 40 pictures, task low\n", printed)
    assert "digit 6" not in printed
    assert "did you mean low" in refused(*words, "lou")
    said = refused("test", place / "held" / "low", "--model", place / "model", "--task", "high")
    assert "The class 'digit 0'" in said
    assert "is not known to the task high; it knows digit 6, digit 7, digit 8" in said


def test_files_that_are_skipped_are_listed(place: Path, tmp_path: Path, accepted: Accepted) -> None:
    held = Path(shutil.copytree(place / "held" / "low", tmp_path / "held"))
    for number in range(12):
        (held / "digit 0" / f"broken {number:02}.png").write_text("?")
    printed = accepted("test", held, "--model", place / "model")
    assert "Skipped 12 files that are no usable pictures:" in printed
    assert "broken 09.png" in printed
    assert "broken 10.png" not in printed
    assert "and 2 more (--json lists all)" in printed
    assert "of 40 pictures" in printed


def test_mistakes_are_one_sentence(place: Path, tmp_path: Path, refused: Refused) -> None:
    held, model = place / "held" / "low", place / "model"
    missing = tmp_path / "missing"
    assert (
        f"There is no model {missing}; make one with `rivals learn FOLDER --model {missing}`."
        in refused("test", held, "--model", missing)
    )
    assert not missing.exists()
    (tmp_path / "empty").mkdir()
    assert "holds no model; make one with `rivals learn" in refused(
        "test", held, "--model", tmp_path / "empty"
    )
    said = refused("test", tmp_path / "empty", "--model", model)
    assert "holds no classes, but a test needs at least one; make a subfolder" in said
    assert "There is no folder" in refused("test", missing, "--model", model)
    (tmp_path / "hollow" / "digit 0").mkdir(parents=True)
    said = refused("test", tmp_path / "hollow", "--model", model)
    assert "The class 'digit 0'" in said
    assert "has 0 pictures" in said
    folder(tmp_path / "strange", (3,), 2)
    said = refused("test", tmp_path / "strange", "--model", model)
    assert "The class 'digit 3'" in said
    assert f"is not known to the model {model}; it knows digit 0, digit 1" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--json", "--csv"], "--json and --csv cannot be combined"),
        (["--plot", "matrix.txt"], "its name must end in .png, .svg or .pdf"),
        (["--plot", "nowhere/matrix.png"], "There is no folder nowhere for matrix.png"),
        (["--mistakes", "worst.jpg"], "--mistakes is worst.jpg, but its name must end in .png"),
        (["--mistakes", "nowhere/worst.png"], "There is no folder nowhere for worst.png"),
        (["--threads", "0"], "--threads is 0"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    tmp_path: Path, refused: Refused, words: list[str], sentence: str
) -> None:
    assert sentence in refused("test", tmp_path / "held", "--model", tmp_path / "model", *words)


def test_the_most_confident_mistakes_are_named_and_shown(
    place: Path, tmp_path: Path, accepted: Accepted
) -> None:
    """Pictures in the folder of another class cannot be answered rightly."""
    held = tmp_path / "held"
    folder(held, (6,), 3, first=60)
    for number in (7, 8):
        shutil.copytree(place / "held" / "high" / f"digit {number}", held / f"digit {15 - number}")
    sheet = tmp_path / "worst.png"
    words = ["test", held, "--model", place / "model", "--task", "high"]
    printed = accepted(*words, "--mistakes", sheet)
    found = Model(place / "model").test(held, "high")
    assert len(found.wrong) == found.images - found.right > 30
    confidences = [each.confidence for each in found.wrong]
    assert confidences == sorted(confidences, reverse=True)
    lines = re.findall(r"^  (.*) is (digit \d), answered (digit \d) \(([\d.]+) %\)$", printed, re.M)
    assert lines == [
        (str(each.picture), each.truth, each.answer, f"{100 * each.confidence:.1f}")
        for each in found.mistakes(5)
    ]
    for each in found.mistakes(3):
        assert Path(each.picture).parent == held / each.truth  # it can be opened
        answer = Model(place / "model").predict(each.picture, "high")
        assert (answer.label, answer.task) == (each.answer, "high")
        assert answer.confidence == pytest.approx(each.confidence, abs=1e-6)
        with Image.open(each.picture) as picture:
            assert (each.image[0] == picture).all()
    assert f"Saved 24 mistakes as {sheet}." in printed
    with Image.open(sheet) as picture:
        assert picture.width > picture.height > 500  # four rows of six
    told = json.loads(accepted(*words, "--json"))["mistakes"]
    assert told == [each.to_dict() for each in found.wrong]


def test_mistakes_in_arrays_have_numbers(place: Path, tmp_path: Path, accepted: Accepted) -> None:
    pictures = [digit(number) for number in numbers(6)[60:64] + numbers(7)[60:64]]
    images = np.stack([np.asarray(picture) for picture, _ in pictures])
    labels = ["digit 6"] * 4 + ["digit 6"] * 4  # half of them wrong
    found = Model(place / "model").test((images, labels), "high")
    assert {4, 5, 6, 7} >= {each.picture for each in found.wrong if each.answer == "digit 7"}
    for each in found.wrong:
        assert (each.image[0] == images[each.picture]).all()
    assert found.wrong
    right = report(["a"], ["a"], "", None)
    assert right.save_mistakes(tmp_path / "none.png") == 0
    assert not (tmp_path / "none.png").exists()
    only = tmp_path / "only"
    best = Model(place / "model").test(place / "held" / "high", "high")
    known = {str(each.picture) for each in best.wrong}
    for file in sorted((place / "held" / "high").rglob("*.png")):
        if str(file) not in known:
            (only / file.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(file, only / file.parent.name)
    words = ["test", only, "--model", place / "model", "--task", "high"]
    printed = accepted(*words, "--mistakes", tmp_path / "none.png")
    assert "No mistakes to save." in printed
    assert "Most confident" not in printed


def test_a_report_keeps_a_hundred_mistakes(tmp_path: Path) -> None:
    answers = [Answer((Choice("b" * 60, "t", n / 200),)) for n in range(150)]
    images = np.zeros((150, 3, 8, 8), np.uint8)
    wrong = find_mistakes(range(150), images, ["a"] * 150, answers)
    assert [each.picture for each in wrong] == list(range(149, 49, -1))
    drawn = draw_sheet(wrong[:4])  # long names are cut
    assert drawn.size == (4 * 140 + 12, 128 + 32 + 24)


@pytest.mark.parametrize("classes", [12, 13])
def test_a_confusion_matrix_fits_the_terminal(classes: int, capsys: Any) -> None:
    from rivals.cli.test_command import _show

    labels = [f"a class with a rather long name {number}" for number in range(classes)]
    found = report(labels * 100, labels * 100, "", None)
    out = io.StringIO()
    Console(file=out, width=80).print(confusion_table(found))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("100" in line for line in lines) == classes
    _show(found)
    assert ("Confusion matrix" in capsys.readouterr().out) == (classes == 12)


def test_numbers_of_small_tests() -> None:
    found = report(["a"] * 60 + ["b"] * 20, ["a"] * 80, "", 81.25)
    assert summary(found) == (
        "75.0 % (64.5 to 83.2) of 80 pictures, task unknown; 81.2 % with the task given"
    )
    assert plus_minus(75, 80) == "75.0 % ± 9.3"
    assert plus_minus(100, 0) == "100.0 %"
