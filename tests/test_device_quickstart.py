"""docs/quickstart.md word for word: three tasks of three data sets, none forgotten, one dropped."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import rivals
from rivals.cli.main import main
from rivals.streams.data.catalogue import dataset
from rivals.streams.data.find import search
from teaching import marks

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "quickstart.md"
PICTURES = "40"  # a class; the page has 100, which takes longer. From 40 on, `learn` trains
NEEDED = ("mnist", "fashion-mnist", "cifar-10")


def lines() -> list[str]:
    """The commands of the page in their order."""
    found = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in found for line in block.splitlines()]


def carry_out(line: str) -> str:
    """Run a command of the page; gives what it printed, or puts it into the file it names."""
    command, _, file = line.partition(" > ")
    words = shlex.split(command, comments=True)
    if words[0] == "python":
        made = [sys.executable, *words[1:], PICTURES]
        subprocess.run(made, check=True, capture_output=True)
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main(words[1:])
    assert ended.value.code == 0, line
    if file:
        Path(file.strip()).write_text(printed.getvalue())
    return printed.getvalue()


@pytest.mark.data
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("RIVALS_DATA") or not all(map(search, map(dataset, NEEDED))):
        pytest.skip("$RIVALS_DATA has not the data sets of docs/quickstart.md; see `rivals data`.")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: rivals[export]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    todo = [line for line in lines() if "benchmarks/" not in line]
    known: dict[str, str] = {}
    while todo and not todo[0].startswith("rivals info"):  # learn three tasks: none is forgotten
        carry_out(todo.pop(0))
        now = marks(Path("model")) if Path("model").exists() else {}
        assert {name: now[name] for name in known} == known
        known = now
    assert list(known) == ["digits", "clothes", "things"]
    while not todo[0].startswith("rivals drop"):
        said = carry_out(todo.pop(0))
        assert said
    named, right = judged(Path("answers.csv"))
    assert named >= 0.9
    assert right > 0.75
    said = carry_out(todo.pop(0))
    assert "Deleted the task 'clothes'" in said
    assert "stays there" not in said  # tasks begin with the ancestor, not with each other
    assert marks(Path("model")) == {n: known[n] for n in ("digits", "things")}
    for line in todo:
        said = carry_out(line)
    answers = said.splitlines()
    assert len(answers) == 200
    same = [line.split("/")[3] == line.split(": ")[1].split()[0] for line in answers]
    assert sum(same) / len(same) > 0.9
    model = rivals.Model("model")
    assert [task.name for task in model.tasks] == ["digits", "things"]
    assert all(50 < task.accuracy <= 100 for task in model.tasks)
    white = Image.new("RGB", (80, 60), "white")
    assert model.predict(white, reject=0.05).rejected is True


def judged(answers: Path) -> tuple[float, float]:
    """The share of held-out pictures whose task is named rightly, and whose class is right, too."""
    with answers.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    parts = [(Path(row["image"]).parts[-3:-1], row) for row in rows]
    named = [task == row["task"] for (task, _), row in parts]
    right = [(task, label) == (row["task"], row["label"]) for (task, label), row in parts]
    return sum(named) / len(rows), sum(right) / len(rows)
