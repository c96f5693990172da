"""The examples run as they stand, and print what they promise."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NEEDS = {
    "photos_to_phone": ("onnxruntime", "onnxscript"),
    "results_in_pandas": ("pandas", "matplotlib", "jinja2"),
}
APART = ("learning_device",)  # it bounds the memory of its process, so it gets one of its own
PRINTS = {  # what the last lines of each must say
    "compare_methods": r"twta +9\d\.\d ± +[\d.]+ % right, +0\.0 points .*\nfinetune +[678]\d",
    "learning_device": r"(?s)the same to the last bit.*tasks: low, high$",
    "own_method": r"finetune +[678]\d.*, +\d\d\.\d points.*\nrehearsal +9.*\ntwta +9.* 0\.0 points",
    "own_network": r"The ticket of task 0-1 has 2,762 weights and answers \('0', '1'\)",
    "photos_to_phone": r"(?s)Learned from 120 photos\..*numbers\.onnx has \d+ kB",
    "results_in_pandas": r"(?s)TWTA +2 +9\d\.\d .*after task 5 +[\d.]+ +[\d.]+ +\d\d",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One working folder for all: what one example has run, another does not run again."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_runs(
    script: Path, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDS.get(script.stem, ()):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [str(script)])
    from rivals.learn.method import methods
    from rivals.nn.network_plan import networks

    try:
        if script.stem in APART:
            subprocess.run([sys.executable, script], check=True)
        else:
            runpy.run_path(str(script), run_name="__main__")
    finally:  # what an example registers is forgotten with it
        for name in [name for name in methods._entries if ":" in name]:
            del methods._entries[name]
        networks._entries.pop("shortcut", None)
    printed = capfd.readouterr().out.strip()
    assert re.search(PRINTS[script.stem], printed), printed


def test_examples_are_short_and_listed() -> None:
    listed = re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == [script.stem for script in SCRIPTS]
    for script in SCRIPTS:
        assert len(script.read_text().splitlines()) < 60, script.name
