"""Runs and grids that somebody else made: nothing in them is imported, followed or believed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import rivals
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.registry import imports_allowed

Accepted = Callable[..., str]
Refused = Callable[..., str]
Tree = Callable[[Path], dict[str, str]]
SMALL = ["tasks=1", "epochs=1", "architecture=mlp", "widths=8-8", "units=2"]


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run, to be tampered with."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def configure(run: Path, **changes: Any) -> None:
    """Change config.yaml, as somebody does who knows how it is written."""
    from rivals.experiment.run_folder import RunFolder
    from rivals.io.files import write_yaml
    from rivals.io.seal import sealed

    content = {**RunFolder(run).read_config(), **changes}
    write_yaml(run / "config.yaml", sealed(content))


# Imports -----------------------------------------------------------------------------------------

EVIL = """
from pathlib import Path
Path("it-ran").touch()
from rivals.baselines.controls import Finetune
from rivals.nn.small import mlp
from rivals.streams.digits import Digits, DigitsSettings
from rivals.streams.stream import Benchmark
T = Benchmark(DigitsSettings, Digits)
"""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the working folder; the file that appears when it is imported."""
    (tmp_path / "evilmod.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as `python -m` does
    yield tmp_path / "it-ran"
    sys.modules.pop("evilmod", None)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"benchmark": "evilmod:T"}, "evilmod:T"),
        ({"method": "evilmod:Finetune"}, "evilmod:Finetune"),
        ({"network": {"architecture": "evilmod:mlp", "widths": [16, 16], "units": 2}},
         "evilmod:mlp"),
    ],
    ids=["benchmark", "method", "architecture"],
)  # fmt: skip
def test_a_run_does_not_choose_what_is_imported(
    changes: dict[str, Any], name: str, run: Path, evil: Path, refused: Refused,
    accepted: Accepted, words: list[str],
) -> None:  # fmt: skip
    configure(run, **changes)
    task = ("export", "--model", run, "--all-tasks", "out.onnx")
    assert f"add --allow-import {name}." in refused(*task)
    accepted("info", run)
    accepted("report", run, "--out", "report")
    assert "holds another run" in refused(*words, "--out", run, "--resume")
    assert not evil.exists()
    assert not Path("out.onnx").exists()


def test_an_export_imports_what_the_command_line_allows(
    run: Path, evil: Path, accepted: Accepted, refused: Refused
) -> None:
    configure(run, benchmark="evilmod:T")
    words = ("export", "--model", run, "--task", "0-1-2-3-4", "out.onnx")
    refused(*words, "--allow-import", "evilmod:Other")
    assert not evil.exists()
    accepted(*words, "--allow-import", "evilmod:T")
    assert evil.exists()
    assert Path("out.onnx").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"benchmarks": ["evilmod:T"]},
        {"methods": ["evilmod:Finetune"]},
        {"set": {**dict(word.split("=") for word in SMALL), "architecture": "evilmod:mlp"}},
    ],
    ids=["benchmark", "method", "architecture"],
)
def test_a_grid_file_does_not_choose_what_is_imported(
    changes: dict[str, Any], tmp_path: Path, evil: Path, refused: Refused, accepted: Accepted
) -> None:
    grid = {"benchmarks": ["digits"], "methods": ["finetune"], "set": _settings(), **changes}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    compare = ("compare", "grid.yaml", "--out", "out", "--workers", "1")
    if "architecture" not in str(changes):
        (name,) = next(iter(changes.values()))
        assert f"add --allow-import {name}." in refused(*compare)
        assert not Path("out").exists()
    else:  # a network is built by the workers, which have no permission either
        name = "evilmod:mlp"
        with pytest.raises(SystemExit) as exit_:
            rivals_main([*compare, "--json"])
        assert exit_.value.code == 1
    assert not evil.exists()
    allowed = json.loads(accepted(*compare, "--allow-import", name, "--json"))
    assert [each["status"] for each in allowed["runs"]] == ["finished"]
    assert evil.exists()


def _settings() -> dict[str, str]:
    return dict(word.split("=") for word in SMALL)


def rivals_main(words: list[Any]) -> None:
    from rivals.cli.main import main

    main([str(word) for word in words])


def test_a_module_of_the_working_folder_does_not_replace_ours_in_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accepted: Accepted
) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("Python 3.10 has no PYTHONSAFEPATH.")
    (tmp_path / "yaml.py").write_text('open("it-ran", "w"); raise SystemExit(3)')
    monkeypatch.chdir(tmp_path)
    words = [word for change in SMALL for word in ("--set", change)]
    grid = ("--benchmarks", "digits", "--methods", "finetune", "--workers", "1", "--json")
    said = json.loads(accepted("compare", *grid, *words))
    assert [each["status"] for each in said["runs"]] == ["finished"]
    assert not Path("it-ran").exists()


def test_python_imports_what_it_is_given_and_only_in_that_call(evil: Path) -> None:
    settings = {**_settings(), "architecture": "evilmod:mlp"}
    results = rivals.run("evilmod:T", "evilmod:Finetune", settings=settings, out="mine")
    assert results.content["method"] == "evilmod:Finetune"
    (found,) = rivals.compare("evilmod:T", "evilmod:Finetune", settings=settings, workers=1)
    assert found.status == "finished"
    with pytest.raises(RivalsError, match="add --allow-import evilmod:Finetune"):
        methods["evilmod:Finetune"]
    with imports_allowed(["evilmod:Finetune"]):
        assert methods["evilmod:Finetune"].__name__ == "Finetune"
