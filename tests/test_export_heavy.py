"""LiteRT and executorch: the same answers as the ticket, where their large packages are installed.

They are not part of the development environment; docs/deploy.md says how to install them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from rivals import edge
from rivals.deploy.export_format import Options, formats
from rivals.edge.artefact import softmax
from rivals.errors import RivalsError
from shipped import NETWORKS, shipped

SUFFIXES = {"litert": ".tflite", "executorch": ".pte"}
LARGEST = {"litert": 30_000, "executorch": 40_000}  # bytes for the small tickets, beyond weights


@pytest.fixture(params=SUFFIXES)
def name(request):
    """A format that is installed."""
    missing = [module for module in formats[request.param].modules if find_spec(module) is None]
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not installed; use pip install 'rivals[{request.param}]'."
        )
    return request.param


def written(name, kind, folder, raw=True):
    path = folder / f"ticket{SUFFIXES[name]}"
    formats[name].write(shipped(kind)[0], path, Options(raw_input=raw))
    return path


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_artefact_says_what_the_ticket_says(name, kind, tmp_path, capfd) -> None:
    ticket, lesson = shipped(kind)
    capfd.readouterr()
    path = written(name, kind, tmp_path)
    artefact = edge.load(path, run_native=True)
    images = lesson.test.images
    found = softmax(artefact.scores(images.numpy()))
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", ""), "converters keep quiet"
    assert np.abs(found - ticket(images).numpy()).max() <= 1e-5
    assert artefact.card.classes == (ticket.classes,)
    weights = 4 * sum(parameter.numel() for parameter in ticket.network.parameters())
    assert path.stat().st_size <= weights + LARGEST[name]
    assert json.loads(path.with_name(f"{path.name}.json").read_text())["task"] == ticket.task


def test_prepared_images_are_taken_too(name, tmp_path) -> None:
    ticket, lesson = shipped("own")
    artefact = edge.load(written(name, "own", tmp_path, raw=False), run_native=True)
    images = lesson.test.images[:20]
    assert np.abs(softmax(artefact.scores(images.numpy())) - ticket(images).numpy()).max() <= 1e-5


def test_a_damaged_file_is_refused(name, tmp_path) -> None:
    path = written(name, "lenet", tmp_path)
    whole = path.read_bytes()
    for damage in (b"", b"nonsense" * 100, whole[:20], whole[: len(whole) // 2]):
        path.write_bytes(damage)
        words = [sys.executable, "-m", "rivals.edge", "--run-native", str(path), "picture.png"]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("rivals-edge: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_a_card_that_is_missing_is_told(name, tmp_path) -> None:
    path = written(name, "lenet", tmp_path)
    path.with_name(f"{path.name}.json").unlink()
    with pytest.raises(RivalsError, match=r"keep .* and its card together"):
        edge.load(path, run_native=True)


def test_litert_runs_without_torch(tmp_path) -> None:
    if find_spec("litert_torch") is None:
        pytest.skip("litert_torch not installed; use pip install 'rivals[litert]'.")
    path = written("litert", "lenet", tmp_path)
    code = (
        "import sys, numpy; from rivals import edge; "
        f"print(edge.load({str(path)!r}).scores(numpy.zeros((1, 1, 8, 8), numpy.uint8)).shape); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(1, 5)\n", "")


@pytest.mark.parametrize("name", SUFFIXES)
def test_what_is_not_installed_is_told(name) -> None:
    if all(find_spec(module) for module in formats[name].modules):
        pytest.skip(f"{name} is installed.")
    with pytest.raises(RivalsError, match=rf"use pip install 'rivals\[{name}\]'\.\Z"):
        formats[name].check_installed(name)
