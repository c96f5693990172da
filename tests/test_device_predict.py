"""Asking: files, folders and lists; text, JSON and CSV; strangers; tickets without torch."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rivals.cli.main import main
from rivals.edge.artefact import load
from rivals.errors import RivalsError
from rivals.model.folder import ModelFolder
from rivals.model.model import Model
from teaching import asked, folder, teach

Accepted = Callable[..., str]
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two tasks, and pictures to ask about."""
    place = tmp_path_factory.mktemp("asked")
    for name, classes in (("low", (0, 1)), ("high", (6, 7, 8))):
        teach(folder(place / name, classes, 50), place / "model", epochs=15)
        folder(place / "new" / name, classes, 10, first=60)
    return place


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_files_and_folders(taught: Path, accepted: Accepted) -> None:
    one = next((taught / "new" / "low" / "digit 0").iterdir())
    said = accepted("predict", one, taught / "new" / "high", "--model", taught / "model")
    rows = said.splitlines()
    assert len(rows) == 31
    assert rows[0].startswith(f"{one}: digit 0  ")
    assert rows[0].endswith("% " + " task low")
    assert sum("task high" in row for row in rows) > 25


def test_json_and_csv_say_the_same(taught: Path, accepted: Accepted) -> None:
    words = ["predict", taught / "new", "--model", taught / "model"]
    objects = lines(accepted(*words, "--json"))
    rows = list(csv.DictReader(io.StringIO(accepted(*words, "--csv"))))
    assert len(objects) == len(rows) == 50
    for one, row in zip(objects, rows, strict=True):
        assert (one["image"], one["task"], one["label"]) == (
            row["image"],
            row["task"],
            row["label"],
        )
        assert float(row["confidence"]) == pytest.approx(one["confidence"])
        assert row["rejected"] == "false"


def test_a_list_on_stdin(taught: Path) -> None:
    files = [str(path) for path in sorted((taught / "new").rglob("*.png"))]
    text = "\n".join([*files[:3], "", str(taught / "new" / "low" / "digit 1")])
    done = subprocess.run(
        [sys.executable, "-m", "rivals.cli.main", "predict", "-", "--model", taught / "model"],
        input=text, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 13


def test_what_cannot_be_read_does_not_stop_the_others(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = next((taught / "new" / "low" / "digit 0").iterdir())
    (tmp_path / "bad.png").write_text("?")
    words = ["predict", tmp_path / "bad.png", good, tmp_path / "gone.png", "--model",
             taught / "model"]  # fmt: skip
    for more in ([], ["--json"], ["--csv"]):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in (*words, *more)])
        assert ended.value.code == 2
        printed = capsys.readouterr()
        assert "digit 0" in printed.out
        assert "bad.png is not a picture" in printed.out + printed.err
        assert "There is no picture" in printed.out + printed.err


def test_the_task_may_be_given(taught: Path, accepted: Accepted, refused: Refused) -> None:
    high, model = taught / "new" / "high", taught / "model"
    found = lines(accepted("predict", high, "--model", model, "--task", "low", "--json"))
    assert {row["task"] for row in found} == {"low"}
    assert "did you mean low" in refused("predict", high, "--model", model, "--task", "lo")


def test_strangers_are_refused(taught: Path) -> None:
    predictor = Model(taught / "model")
    known = [picture for picture, _ in asked((0, 1, 6, 7, 8), first=70)]
    noise = np.random.default_rng(0).integers(0, 256, (100, 8, 8), np.uint8)
    strange = [Image.fromarray(each) for each in noise]

    def share(pictures: list[Image.Image], reject: float | None) -> float:
        answers = predictor.predict(pictures, reject=reject)
        return sum(answer.rejected for answer in answers) / len(answers)

    assert share(known, None) == share(known, 0.0) * 0 == 0
    shares = [share(known, reject) for reject in (0.0, 0.05, 0.2, 0.5)]
    assert shares == sorted(shares)
    assert shares[1] < 0.15
    assert 0.3 < shares[3] < 0.7
    assert share(strange, 0.05) > 0.9


def test_reject_on_the_command_line(taught: Path, tmp_path: Path, accepted: Accepted) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    words = ["predict", tmp_path / "noise.png", "--model", taught / "model", "--reject", "0.05"]
    assert "none of these  (most like digit" in accepted(*words)
    (row,) = lines(accepted(*words, "--json"))
    assert (row["label"], row["rejected"]) == (None, True)
    assert accepted(*words, "--csv").splitlines()[1].split(",")[2] == ""


@pytest.mark.parametrize("share", ["-0.1", "1", "nan", "2"])
def test_shares_that_make_no_sense(taught: Path, refused: Refused, share: str) -> None:
    said = refused("predict", taught / "new", "--model", taught / "model", "--reject", share)
    assert "at least 0 and below 1" in said


def test_wrong_models(taught: Path, tmp_path: Path, refused: Refused) -> None:
    picture = next((taught / "new" / "low" / "digit 0").iterdir())
    assert "holds no model" in refused("predict", picture, "--model", tmp_path)
    assert "no artefact" in refused("predict", picture, "--model", tmp_path / "gone.onnx")
    said = refused("predict", picture, "--model", tmp_path / "gone")
    assert f"There is no model {tmp_path / 'gone'}; make one with `rivals learn" in said
    assert "choose one" in refused("predict", picture, "--model", tmp_path, "--json", "--csv")
    assert "--threads is 0" in refused("predict", picture, "--model", tmp_path, "--threads", "0")


@pytest.fixture(scope="module")
def ticket(taught: Path) -> Path:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: rivals[export]")
    out = taught / "high.onnx"
    with pytest.raises(SystemExit) as ended:
        main(["export", "--model", str(taught / "model"), "--task", "high", "--to", "onnx",
              str(out), "--json"])  # fmt: skip
    assert ended.value.code == 0
    return out


def test_an_exported_ticket_answers_the_same(
    taught: Path, ticket: Path, accepted: Accepted
) -> None:
    words = ["predict", taught / "new", "--task", "high", "--json", "--model"]
    ours, theirs = (lines(accepted(*words, model)) for model in (taught / "model", ticket))
    for one, other in zip(ours, theirs, strict=True):
        assert (one["image"], one["task"], one["label"]) == (
            other["image"], other["task"], other["label"],
        )  # fmt: skip
        assert one["confidence"] == pytest.approx(other["confidence"], abs=1e-4)


def test_an_exported_ticket_needs_no_torch(taught: Path, ticket: Path) -> None:
    code = (
        "import sys\nfrom rivals.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules\nassert 'rivals.model' not in sys.modules\n"
    )
    words = ["predict", str(taught / "new"), "--model", str(ticket)]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 50


def test_a_model_imports_little(taught: Path, tmp_path: Path) -> None:
    """Neither learning's tools nor the decoders of rare formats, until a picture has one."""
    code = (
        "import sys\nfrom rivals.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "wanted = ('yaml', 'rich', 'scipy', 'torch.utils.flop_counter', 'PIL.TgaImagePlugin')\n"
        "print([name for name in wanted if name in sys.modules])\n"
    )
    one = next((taught / "new" / "low" / "digit 0").iterdir())
    Image.open(one).save(tmp_path / "rare.tga")
    for picture, imported in ((one, "[]"), (tmp_path / "rare.tga", "['PIL.TgaImagePlugin']")):
        done = subprocess.run(
            [sys.executable, "-c", code, "predict", picture, "--model", taught / "model"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answer, modules = done.stdout.splitlines()
        assert ": digit 0  " in answer
        assert modules == imported


def test_what_an_exported_ticket_cannot(taught: Path, ticket: Path, refused: Refused) -> None:
    new = taught / "new"
    assert "use the model's folder" in refused("predict", new, "--model", ticket, "--reject", "0.1")
    assert "answers for high" in refused("predict", new, "--model", ticket, "--task", "low")


def test_all_tasks_in_one_file(taught: Path, ticket: Path, accepted: Accepted) -> None:
    out = taught / "all.onnx"
    accepted("export", "--model", taught / "model", "--all-tasks", "--to", "onnx", out)
    words = ["predict", taught / "new", "--json", "--model"]
    ours, theirs = (lines(accepted(*words, model)) for model in (taught / "model", out))
    same = [(a["task"], a["label"]) == (b["task"], b["label"])
            for a, b in zip(ours, theirs, strict=True)]  # fmt: skip
    assert sum(same) >= 49
    assert load(out).card.tasks == ("low", "high")


def test_the_card_says_how_good_it_is(taught: Path, ticket: Path) -> None:
    facts = ModelFolder.open(taught / "model").task("high")
    assert load(ticket).card.accuracy == pytest.approx(facts.accuracy)


def test_info(taught: Path, accepted: Accepted) -> None:
    said = accepted("info", taught / "model")
    for word in (
        "low",
        "high",
        "digit 6, digit 7, digit 8",
        "Free weights",
        "Winners of layer 2: 100 blocks",
    ):
        assert word in said
    told = json.loads(accepted("info", taught / "model", "--json"))
    assert told["kind"] == "model"
    assert [task["name"] for task in told["tasks"]] == ["low", "high"]
    assert told["overlap"][0][0] == 100
    assert len(told["winners"]["low"]) == len(told["units"]) == 2
    assert told["spare"] == (taught / "model" / ".spare").stat().st_size
    files = [taught / "model" / "model.json", *(taught / "model" / "tasks").iterdir()]
    assert told["bytes"] == sum(path.stat().st_size for path in files)
    assert sum(task["bytes"] for task in told["tasks"]) < told["bytes"]


def test_scores_that_are_not_finite_are_no_class(taught: Path) -> None:
    model = Model(taught / "model")
    predictor = model.predictor()
    head = [m for m in predictor.tickets[0].modules() if isinstance(m, torch.nn.Linear)][-1]
    head.bias.data[0] = float("nan")
    for task in (None, "low"):
        with pytest.raises(RivalsError, match="numbers that are not finite, which is no class"):
            model.predict(np.zeros((8, 8), np.uint8), task=task)
    assert model.predict(np.zeros((8, 8), np.uint8), task="high").task == "high"
