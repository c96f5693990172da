"""`rivals data`, `rivals data get` and `rivals data check`, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_releases as releases
from typer.testing import CliRunner

from rivals.cli.data_command import app
from rivals.errors import RivalsError

runner = CliRunner()


def test_list_names_every_set_with_home_and_terms(root: Path) -> None:
    releases.mnist(root)
    said = runner.invoke(app, []).output
    assert "mnist          subset" in said
    assert "40 of 60,000 training images and 20 of 10,000 test images" in said
    assert "cifar-100      absent" in said
    assert "https://www.cs.toronto.edu/~kriz/cifar.html (free for research" in said


def test_list_as_json_of_all_sets(root: Path) -> None:
    releases.everything(root)
    found = json.loads(runner.invoke(app, ["--json"]).output)
    assert len(found) == 8
    assert {entry["state"] for entry in found} == {"subset"}
    assert all(entry["home"] and entry["terms"] and entry["fingerprint"] for entry in found)


def test_data_option_wins(root: Path, tmp_path: Path) -> None:
    releases.mnist(tmp_path / "other")
    found = json.loads(runner.invoke(app, ["--json", "--data", str(tmp_path / "other")]).output)
    assert found[0]["folder"] == str(tmp_path / "other")


def test_list_shows_what_is_broken(root: Path) -> None:
    releases.mnist(root)
    (root / "MNIST/raw/train-labels-idx1-ubyte.gz").write_bytes(b"nothing")
    said = runner.invoke(app, []).output
    assert "mnist          broken" in said
    assert "is cut short or damaged" in said


def test_check_passes_and_fails(root: Path) -> None:
    releases.mnist(root)
    done = runner.invoke(app, ["check"])
    assert done.exit_code == 0
    assert "mnist          subset, not the official bytes" in done.output
    path = root / "MNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    done = runner.invoke(app, ["check", "mnist"])
    assert isinstance(done.exception, RivalsError)
    assert "mnist is broken as said above" in str(done.exception)


def test_check_of_an_absent_set_says_how_to_get_it(root: Path) -> None:
    done = runner.invoke(app, ["check", "svhn"])
    assert isinstance(done.exception, RivalsError)
    assert "rivals data get svhn" in str(done.exception)


def test_get_refuses_unknown_names_and_keeps_subsets(root: Path) -> None:
    done = runner.invoke(app, ["get", "mnits"])
    assert "did you mean mnist" in str(done.exception)
    releases.mnist(root)
    done = runner.invoke(app, ["get", "mnist"])
    assert "is there but is not the official file" in str(done.exception)


@pytest.mark.parametrize("module", ["torch", "numpy", "rivals.streams.data.loading"])
def test_import_is_light(module: str) -> None:
    code = f"import sys, rivals.cli.data_command; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
