"""How the package is built: no name twice, imports go one way, some rooms never import torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "rivals"
MODULES = sorted(PACKAGE.rglob("*.py"))

# From the bottom to the top. A room imports from the rooms above it in this list, and never from
# those below it. The longest name counts: experiment/bench is not part of experiment here.
ROOMS = (
    "errors",
    "io",
    "registry",
    "seeds",
    "settings",
    "answer",
    "ancestors/shipped_file",  # what a device reads, too, has no torch down to the next line
    "streams/preprocessing",
    "streams/label_splits",
    "streams/picture_source",
    "model/limits",
    "model/history",
    "model/manifest",
    "model/stored_file",
    "model/spare_space",
    "model/ticket_mark",
    "model/folder_writing",
    "model/lesson_checks",
    "naming/frame_filter",  # one answer from several frames
    "naming/class_sums",  # naming tasks by shared features
    "naming/feature_space",
    "naming/confidence",
    "naming/task_statistics",
    "naming/joint_head",
    "edge",  # runs exported files and learns, without torch
    "logs",  # where the numbers of a training go; torch only inside one of them
    "experiment/grid_state",  # what a comparison says of itself, without torch
    "experiment/result_file",  # the format of results, without torch
    "experiment/report",  # reads result files, without torch
    "nn",
    "streams",
    "tickets",
    "naming",
    "ancestors",  # networks that models start from
    "learn",
    "ancestors/train",  # how they are trained
    "ancestors/background",
    "baselines",
    "model",
    "experiment",
    "deploy",  # exports from models and runs
    "ancestors/making",  # makes ancestors of models and runs
    "experiment/bench",  # measures all of the above
    "model/checking",  # reads every kind of folder and file
    "model/model",  # rivals.Model: it can export, too
    "sklearn",  # bridges to other libraries, which only they import
    "avalanche",
    "web",
    "watch",  # a stream of frames, and who is told of it; labels come in as the page's requests do
    "cli",
    "__main__",
)


def module_name(path: Path) -> str:
    """`model/folder` for src/rivals/model/folder.py; `model` for its __init__.py."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__")


def room_of(name: str) -> str:
    """The room of a module: the longest name in ROOMS that its path starts with."""
    found = [room for room in ROOMS if name == room or name.startswith(f"{room}/")]
    assert found, f"{name} is in no room; add it to ROOMS"
    return max(found, key=len)


def imported(source: str) -> Iterator[tuple[int, str]]:
    """What of rivals a module imports, at its top or in a function: line and module path."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            while len(parts) > 1 and not is_module(parts):
                parts.pop()  # a class or a function of that module
            if parts[0] == "rivals" and len(parts) > 1:
                yield node.lineno, "/".join(parts[1:])


def outside_modules(source: str) -> set[str]:
    """The packages that a module imports, at its top or in a function."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


def is_module(parts: list[str]) -> bool:
    path = PACKAGE.joinpath(*parts[1:])
    return path.is_dir() or path.with_suffix(".py").exists()


def wrong_way(name: str, source: str) -> list[str]:
    """The imports of a module that lead to a room below its own."""
    own = ROOMS.index(room_of(name))
    return [
        f"{name}.py, line {line}: {room_of(name)} imports {target}"
        for line, target in imported(source)
        if ROOMS.index(room_of(target)) > own
    ]


def test_imports_go_one_way() -> None:
    found = [
        each
        for path in MODULES
        if path != PACKAGE / "__init__.py"  # it names what is public, and imports it when asked
        for each in wrong_way(module_name(path), path.read_text())
    ]
    assert not found


def test_a_wrong_import_is_noticed() -> None:
    hidden = "def later():\n    from rivals.learn.method import Method\n"
    assert wrong_way("nn/blocks", hidden) == ["nn/blocks.py, line 2: nn imports learn/method"]
    assert wrong_way("nn/blocks", "from rivals.learn import method")
    assert wrong_way("experiment/loop", "import rivals.experiment.bench.timing")
    assert not wrong_way("experiment/bench/timing", "from rivals.experiment import loop")
    assert not wrong_way("learn/method", "from rivals import __version__")
    assert outside_modules("def later():\n    from torch.nn import Linear") == {"torch"}


def test_every_room_is_there() -> None:
    assert {room_of(module_name(path)) for path in MODULES if path.parent != PACKAGE} <= set(ROOMS)
    for room in ROOMS:
        assert (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists(), room


def test_no_class_name_occurs_twice() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module_name(path))
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_name_occurs_twice() -> None:
    """Folders count, too. Only the main module of a folder may have its name: model/model.py."""
    places = defaultdict(list)
    for path in MODULES:
        if path.name == "__init__.py" and path.parent != PACKAGE:
            places[path.parent.name].append(module_name(path))
        elif path.stem not in ("__init__", "__main__", path.parent.name):
            places[path.stem].append(module_name(path))
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("room", ["edge", "experiment/report"])
def test_rooms_without_torch(room: str) -> None:
    """No module imports torch by name, and importing them all does not load it either."""
    paths = sorted((PACKAGE / room).rglob("*.py"))
    users = {path.stem for path in paths if "torch" in outside_modules(path.read_text())}
    assert users <= {"runtime_executorch"}  # ExecuTorch's runtime for Python loads torch itself
    names = [
        f"rivals.{module_name(path).replace('/', '.')}"
        for path in paths
        if path.stem != "__main__" and not path.stem.startswith("runtime_")  # an extra package each
    ]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print([each for each in ('torch', 'rivals.nn') if each in sys.modules])\n"
    )
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
