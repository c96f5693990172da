"""What the tests of runs share: one thread, small runs, and what must be equal between two runs."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from forge import Forge
from rivals.cli.main import main
from rivals.errors import Interrupted
from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from toys import CHANGES, contents

# Files that take long: begun late, one of them would keep a process while the others are idle.
FIRST = (
    "test_resume", "test_docs", "test_serve_page", "test_compare", "test_page_tour", "test_methods",
    "test_bench", "test_direct", "test_fuzz", "test_crash_points", "test_device_quickstart",
)  # fmt: skip
# Files that share what takes long to make: files exported from one run; tickets in C.
TOGETHER = {
    **dict.fromkeys(("test_check", "test_edge", "test_export", "test_web_export"), "exports"),
    **dict.fromkeys(("test_c_source", "test_devices"), "c"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file run in one process, so what they share is made once, not in each.

    Marks of groups would say the same, but xdist 3.8 does not see them with pytest 9.2.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return TOGETHER.get(Path(file).stem, file)

    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def templates_compiled_once() -> Iterator[None]:
    """Every export to C compiles 169 templates: more than half of its time."""
    if find_spec("jinja2") is None:
        yield
        return
    from jinja2 import BytecodeCache, Environment

    class CompiledTemplates(BytecodeCache):
        code: ClassVar[dict[tuple[str, str], Any]] = {}

        def load_bytecode(self, bucket: Any) -> None:
            bucket.code = self.code.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: Any) -> None:
            self.code[bucket.key, bucket.checksum] = bucket.code

    begin = functools.partialmethod(Environment.__init__, bytecode_cache=CompiledTemplates())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Environment, "__init__", begin)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def changes() -> list[str]:
    """The settings of a run of about twenty steps, as --set takes them."""
    return list(CHANGES)


@pytest.fixture(scope="session")
def words() -> list[str]:
    """The command line of that run, without its folder."""
    return ["run", "digits", *(word for change in CHANGES for word in ("--set", change))]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of that run when nobody interrupts it. Only to be read."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    prepare(resolve("digits", overrides=parse_overrides(CHANGES)), folder).go()
    return folder


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of that run stopped in the middle of its second task. Only to be copied."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    settings = resolve("digits", overrides=parse_overrides(CHANGES))
    calls = iter(range(1000))
    with pytest.raises(Interrupted):
        prepare(settings, folder, asked_to_stop=lambda: next(calls) == 13).go()
    manifest = json.loads((folder / "checkpoint" / "manifest.json").read_text())
    assert manifest["done"] == 1
    assert manifest["parts"]["common"]["facts"]["position"]["step"] > 0
    return folder


TRAINED = ["tasks=2", "epochs=8", "architecture=mlp", "widths=64-64", "units=2"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that learned well enough for its tickets to be sure. Only to be read."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    prepare(resolve("digits", overrides=parse_overrides(TRAINED)), folder).go()
    return folder


EXPORTS = {
    "ticket.onnx": ["--task", "0-1-2-3-4", "--to", "onnx"],
    "float.onnx": ["--task", "0-1-2-3-4", "--to", "onnx", "--float-input"],
    "ticket.ort": ["--task", "0-1-2-3-4", "--to", "ort"],
    "int8.onnx": ["--task", "0-1-2-3-4", "--to", "onnx-int8"],
    "all.onnx": ["--all-tasks", "--to", "onnx"],
}


@pytest.fixture(scope="session")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `rivals export --json` says of each artefact of that run. Only to be read."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: rivals[export]")
    folder, told = tmp_path_factory.mktemp("exported"), {}
    for name, words in EXPORTS.items():
        printed = io.StringIO()
        line = ["export", "--model", str(trained), *words, str(folder / name), "--json"]
        with redirect_stdout(printed), pytest.raises(SystemExit) as exit_:
            main(line)
        assert exit_.value.code == 0
        told[name] = json.loads(printed.getvalue())
    assert sorted(path.name for path in folder.iterdir()) == sorted(EXPORTS)
    return told


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, str]]:
    return contents


@pytest.fixture(scope="session")
def outcome() -> Callable[[Path], dict[str, Any]]:
    """All that a run leaves behind but the clock: results, tickets with their winners and weights,
    and the checkpoint with the checksum of every part."""

    def read(folder: Path) -> dict[str, Any]:
        manifest = json.loads((folder / "checkpoint" / "manifest.json").read_text())
        del manifest["measured"], manifest["sha256"]
        clock = ("measured.json", str(Path("checkpoint") / "manifest.json"))
        files = {name: mark for name, mark in contents(folder).items() if name not in clock}
        results = json.loads((folder / "results.json").read_text())
        return {"files": files, "results": results, "checkpoint": manifest}

    return read


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line that must fail: one line on stderr, status 2. Returns the line."""

    def run(*arguments: str | Path) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(word) for word in arguments])
        printed = capsys.readouterr()
        assert exit_.value.code == 2, printed
        assert printed.out == ""
        assert printed.err.startswith("rivals: "), printed.err
        assert printed.err.count("\n") == 1, printed.err
        assert printed.err.endswith("\n"), printed.err
        return printed.err.strip()

    return run


@pytest.fixture
def accepted(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command line that must succeed, and say nothing on stderr. Returns its output."""

    def run(*arguments: str | Path) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(word) for word in arguments])
        printed = capsys.readouterr()
        assert (exit_.value.code, printed.err) == (0, "")
        return printed.out

    return run


@pytest.fixture(scope="session")
def spawn() -> Callable[..., subprocess.Popen[str]]:
    """Start python, or a command that was installed with rivals, as a process of its own."""
    scripts = sysconfig.get_path("scripts")
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
    }
    env.pop("RIVALS_DATA", None)

    def start(*arguments: str | Path, command: str = sys.executable, **options: Any) -> Any:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": env}
        return subprocess.Popen([command, *map(str, arguments)], **{**pipes, **options})

    return start


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    """Start processes that need not import torch first, which takes longer than what they do."""
    found = Forge()
    found.start("--help").wait()  # it has imported all it needs
    yield found
    found.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """Start servers (`served.Served`), of which none outlives the test."""
    from served import Served

    with ExitStack() as ends:

        def start(model: Path, *words: str, **options: Any) -> Served:
            served = Served(model, *words, **options)
            ends.callback(served.end)
            return served

        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium; skips where there is none."""
    from page_tabs import chromium

    yield from chromium()
