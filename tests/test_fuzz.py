"""Changed folders of every kind: no traceback, no hang, no flood of memory, no other answer.

python -m pytest tests/test_fuzz.py -m slow -s     1,000 changes of each kind, counted

The tests that always run make the first of them, fewer where each takes longer.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from PIL import Image

import fuzzing
from fuzzing import USES, WHAT
from rivals.ancestors.making import make_ancestor
from rivals.cli.main import main
from rivals.model.learning import learn
from rivals.web.collection import Collection
from rivals.web.jobs import Jobs
from served import shape
from teaching import digit, folder, teach
from toys import CHANGES

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="it forks and reads /proc"
)
KINDS = tuple(USES)
SOME = {"run": 50, "model": 80, "descendant": 80}  # of a change 0.1 s and more; others: 100
GRID = """\
preset: default
on: validation
groups:
  - benchmarks: [digits]
    methods: [twta, finetune]
    seeds: [0, 1]
    set: {epochs: 2, tasks: 2}
    name: first
    expect: {task_known: [60, null]}
  - benchmarks: [digits-permuted]
    methods: [twta]
    seeds: [0]
"""
PICTURES = ("png", "jpg", "gif", "bmp", "tif", "webp", "ppm", "ico", "tga")


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> dict[str, Any]:
    """A good thing of each kind, and how it is used."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    place = tmp_path_factory.mktemp("good")
    for name, classes in (("a", (0, 1)), ("b", (2, 3))):
        teach(folder(place / name, classes, 6), place / "model", epochs=1)
    make_ancestor(place / "model", place / "ancestor")
    for name in ("a", "b"):
        learn(place / name, place / "descendant", ancestor=str(place / "ancestor"), grey=True)
    digit(0)[0].save(place / "digit.png")
    tickets = sorted((finished / "tickets").iterdir())
    ticket = shutil.copytree(tickets[0], place / "ticket")
    for name, to in (("t.onnx", "onnx"), ("t.ort", "ort"), ("c", "c")):
        line = ["export", "--model", ticket, "--to", to, place / name]
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in line])
        assert end.value.code == 0
    pictures = []
    for suffix in PICTURES:
        pictures.append(place / f"picture.{suffix}")
        digit(1)[0].resize((16, 16)).convert("RGB").save(pictures[-1])
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    frames[0].save(pictures[2], save_all=True, append_images=frames[1:])
    (place / "grid.yaml").write_text(GRID)
    collect(place / "collected")
    good: dict[str, dict[str, Any]] = {
        "model": {"good": [place / "model"], "task": "a"},
        "run": {
            "good": [finished], "tasks": [unquote(each.name) for each in tickets],
            "words": [word for each in CHANGES for word in ("--set", each)],
        },
        "ticket": {"good": [ticket]},
        "onnx": {"good": [place / "t.onnx"]},
        "ort": {"good": [place / "t.ort"]},
        "c": {"good": [place / "c"], "native": True},
        "collection": {"good": [place / "collected"]},
        "picture": {"good": pictures, "model": place / "model"},
        "grid": {"good": [place / "grid.yaml"]},
        "descendant": {"good": [place / "descendant"], "task": "a"},
        "ancestor": {"good": [place / "ancestor"]},
    }  # fmt: skip
    assert tuple(good) == KINDS
    work = tmp_path_factory.mktemp("fuzz")
    common = {"seed": "rivals", "picture": place / "digit.png", "place": work}
    return {kind: {**common, **plan} for kind, plan in good.items()}


def collect(place: Path) -> None:
    """Pictures of two classes, and two trainings, one of which has ended."""
    found = Collection(place / "pictures")
    for kind in ("circle", "cross"):
        found.add_class("shapes", kind)
        for number in range(2):
            found.add("shapes", kind, shape(kind, number), "x")
    jobs = Jobs(place / "trainings", lambda job: [], lambda job: False)
    jobs.add("shapes")
    jobs.cancel(1)
    jobs.add("others")
    for number in (1, 2):
        events = [{"event": "reading", "done": 1}, {"event": "error", "sentence": "x"}]
        jobs.events(number).write_text("".join(json.dumps(each) + "\n" for each in events))


def fuzz(plans: dict[str, Any], counts: dict[str, int], place: Path) -> dict[str, Any]:
    """The report of `fuzzing.py`, in a process of its own."""
    plan = {kind: {**plan, "count": counts[kind]} for kind, plan in plans.items()}
    (place / "plan.json").write_text(json.dumps(plan, default=str))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("fuzzing.py"), place / "plan.json"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    for kind, found in report.items():
        counted = Counter(each["what"] for each in found["findings"])
        numbers = ", ".join(f"{counted[what]} {what}" for what in WHAT)
        print(
            f"{kind}: {found['mutations']} changes, {found['refused']} refused, "
            f"{found['accepted']} accepted; {numbers}; {found['seconds']} s, {found['cpu']} s CPU"
        )
    return report


@pytest.fixture(scope="module")
def some(plans: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return fuzz(plans, {**dict.fromkeys(KINDS, 100), **SOME}, tmp_path_factory.mktemp("some"))


@pytest.fixture(scope="module")
def many(plans: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return fuzz(plans, dict.fromkeys(KINDS, 1000), tmp_path_factory.mktemp("many"))


def check(kind: str, report: dict[str, Any]) -> None:
    """Nothing went wrong; otherwise one line for each different thing that did."""
    found = report[kind]
    seen: dict[str, list[dict[str, Any]]] = {}
    for each in found["findings"]:
        seen.setdefault(f"{each['what']}: {each['detail'][-160:]}", []).append(each)
    lines = [
        f"{len(each)} × {line}  (first: number {each[0]['number']}, {each[0]['change']} "
        f"in {each[0]['file']})"
        for line, each in sorted(seen.items(), key=lambda item: -len(item[1]))
    ]
    assert not lines, "\n".join([f"{len(found['findings'])} findings of {kind}:", *lines[:40]])
    assert found["refused"] + found["accepted"] == found["mutations"]
    assert found["refused"] > 0.1 * found["mutations"], "the changes must reach what is read"


@pytest.mark.parametrize("kind", KINDS)
def test_some_changes(kind: str, some: dict[str, Any]) -> None:
    check(kind, some)


@pytest.mark.parametrize("stuck", [lambda: time.sleep(60), lambda: all(itertools.count(1))])
def test_a_change_that_hangs_is_noticed(
    stuck: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asleep or computing; the change before it, which takes a while by the clock, is fine."""
    (tmp_path / "grid.yaml").write_text(GRID)
    monkeypatch.setattr(fuzzing, "SECONDS", 0.3)
    monkeypatch.setattr(fuzzing, "ASLEEP", 2.0)

    def use(root: Path, plan: dict[str, Any], used: Any) -> None:
        number = plan.get("usual")  # only of a change
        if number is not None:
            made.append(number)
            time.sleep(1) if len(made) == 1 else stuck()

    made: list[Any] = []
    monkeypatch.setitem(USES, "grid", use)
    plan = {"good": [tmp_path / "grid.yaml"], "count": 2, "seed": "s", "place": tmp_path}
    found = fuzzing.watch("grid", plan)
    assert [(each["what"], each["number"]) for each in found["findings"]] == [("hang", 1)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_1000_changes(kind: str, many: dict[str, Any]) -> None:
    check(kind, many)
