"""The front door: every public name has an example that runs, and little is loaded to use it."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rivals
from test_docs import blocks, named

HEAVY = ("torch", "pydantic", "yaml", "numpy")
NOT_FOR_A_MODEL = (
    "rivals.baselines", "rivals.experiment", "rivals.deploy", "scipy", "sklearn", "jsonschema",
)  # fmt: skip
NOT_FOR_ANSWERS = ("rivals.model.learning", "rivals.model.testing", "rivals.streams.data")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_code(code: str) -> str:
    """What a new Python process prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def loaded(names: tuple[str, ...]) -> str:
    """Code that prints which of `names` are loaded, as packages or with a module of theirs."""
    return (
        "import sys\n"
        f"names, modules = {names!r}, [f'{{name}}.' for name in sys.modules]\n"
        "print([n for n in names if any(module.startswith(n + '.') for module in modules)])"
    )


# Examples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rivals.__all__)
def test_example_of_a_public_name_runs(name: str) -> None:
    torch.set_num_threads(1)
    text = getattr(rivals, name).__doc__ or ""
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, None)
    assert test.examples, f"rivals.{name} has no example in its docstring"
    messages: list[str] = []
    doctest.DocTestRunner().run(test, out=messages.append)
    assert not messages, "".join(messages)


def test_names_that_are_public() -> None:
    assert set(rivals.__all__) == set(rivals._MODULES)
    assert set(rivals.__all__) <= set(dir(rivals))
    with pytest.raises(AttributeError, match="no attribute 'Modle'"):
        rivals.Modle  # noqa: B018
    page = named("python").read_text()
    assert not [name for name in rivals.__all__ if f"rivals.{name}" not in page]


# What is loaded -----------------------------------------------------------------------------------


def test_import_rivals_loads_nothing_heavy() -> None:
    assert run_code(f"import rivals\n{loaded(HEAVY)}") == "[]"
    assert run_code(f"import rivals; rivals.Settings\n{loaded(HEAVY)}") == "['pydantic']"


LEARN = """
import numpy as np
import rivals
images = np.random.default_rng(0).integers(0, 256, (24, 16, 16), dtype=np.uint8)
rivals.Model("small").learn((images, ["a", "b"] * 12), "noise", epochs=1, ancestor="tiny")
"""
FEW = """
import numpy as np
import rivals
images = np.random.default_rng(0).integers(0, 256, (24, 48, 48, 3), dtype=np.uint8)
learned = rivals.Model("few").learn((images, ["a", "b"] * 12), "noise")
assert learned.advice.baselines["pixels"] > 0
"""
PREDICT = """
import numpy as np
import rivals
model = rivals.Model("small")
images = np.zeros((16, 16), np.uint8)
assert model.predict(images).task == "noise"
"""
TEST = """
assert model.test((np.zeros((2, 16, 16), np.uint8), ["a", "b"])).images == 2
assert len(model.ticket("noise").classes) == 2
"""


def test_a_model_loads_no_baselines() -> None:
    assert run_code(LEARN + loaded(NOT_FOR_A_MODEL)) == "[]"
    assert run_code(PREDICT + TEST + loaded(NOT_FOR_A_MODEL)) == "[]"
    assert run_code(PREDICT + loaded(NOT_FOR_ANSWERS)) == "[]"
    assert run_code("import rivals.baselines.er\n" + loaded(NOT_FOR_A_MODEL[:1])) != "[]"


def test_learning_from_few_pictures_does_not_load_the_compiler_of_torch() -> None:
    assert run_code(FEW + loaded(("torch._dynamo", "scipy"))) == "[]"


def test_a_run_does_not_load_the_compiler_of_torch() -> None:
    """Its optimisers and its counter of FLOPs would: more than a second for every training."""
    run = "from rivals import run\nrun('digits', settings={'tasks': 1, 'epochs': 1}, out='run')\n"
    assert run_code(run + loaded(("torch._dynamo",))) == "[]"


# The script of fifteen lines ----------------------------------------------------------------------


def test_the_script_of_fifteen_lines() -> None:
    """In docs/python.md, where test_docs.py runs it: nothing but `import rivals` and the data."""
    _, script = blocks(named("python"), "python")[1]
    lines = [line for line in script.splitlines() if line.strip()]
    assert len(lines) <= 15
    assert [line for line in lines if "import" in line] == ["import rivals"]
    for word in ("learn(", "predict(", "test(", "ticket(", "drop(", "export("):
        assert f"model.{word}" in script
