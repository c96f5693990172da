"""The same sentence for both front doors: options on the command line, arguments in Python."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rivals
from rivals.cli.main import main
from rivals.deploy.exporting import export_from
from rivals.edge.artefact import load
from rivals.errors import ARGUMENTS, RivalsError, command_line

SENTENCES = {
    "--epochs is 0; use --augment crop -- now.": "epochs is 0; use augmentation=crop -- now.",
    "choose another with --name, or refine it with --again.":
        "choose another with the argument name, or refine it with again=True.",
    "allow fewer pictures with --ram. The model is as it was.":
        "allow fewer pictures with the argument ram. The model is as it was.",
    "--grey is for a new model; choose another --model.":
        "grey=True is for a new model; choose another path.",
    "--size 32 is for a new model; use --device cpu or auto.":
        "size=32 is for a new model; use device=cpu or auto.",
    "give one with --data DIR.": "give one with $RIVALS_DATA.",
    "teach it with `rivals learn`.": "teach it with `Model.learn`.",
    "make one with `rivals learn FOLDER --model m`.": "make one with `Model.learn`.",
    "make one with `rivals ancestor make SOURCE --out m`.":
        "make one with `rivals.make_ancestor`.",
    "go on by `rivals run … --resume`.": "go on by `rivals.run(…, resume=True)`.",
    "run `rivals data get omniglot`.": "run `rivals data get omniglot`.",
    "add --allow-import a.b:C.": "do this inside rivals.registry.imports_allowed(['a.b:C']).",
}  # fmt: skip
DOORS = (
    rivals.Model, rivals.Model.learn, rivals.Model.predict, rivals.Model.test, rivals.Model.export,
    rivals.Model.join, rivals.run, rivals.compare, rivals.make_ancestor, export_from, load,
)  # fmt: skip
ELSEWHERE = {  # options of commands that Python has no call for
    "allow-import": "see `imports_allowed`",
    "data": "$RIVALS_DATA",
    "finished-only": "rivals report",
    "repeat": "rivals bench",
    "set": "rivals run",
    "since": "rivals check",
    "teachable": "rivals export",
    **dict.fromkeys(("fps", "mqtt", "once", "sort", "topic", "webhook"), "rivals watch"),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_python_names_arguments(sentence: str) -> None:
    error = RivalsError(sentence)
    assert str(error) == SENTENCES[sentence]
    with command_line():
        assert str(error) == sentence
    assert str(error) == SENTENCES[sentence]


def _options() -> Iterator[tuple[str, str]]:
    """Every option in the sentence of an error, outside of commands, with the file it is in."""
    root = Path(rivals.__file__).parent
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] in ("cli", "web"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "RivalsError":
                words = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
                text = "".join(word for word in words if isinstance(word, str))
                for part in text.split("`")[::2]:
                    yield from ((name, path.name) for name in re.findall(r"--([a-z][a-z-]*)", part))


def test_what_an_error_names_is_an_argument() -> None:
    arguments = {name for door in DOORS for name in inspect.signature(door).parameters}
    found = {*_options()}
    assert {"again", "ram", "out", "data"} <= {name for name, _ in found}, "sentences are found"
    for name, file in found:
        known = ARGUMENTS.get(name, name.replace("-", "_"))
        assert known in arguments or name in ELSEWHERE, f"{file} names --{name}"


def test_an_empty_model_says_how_to_teach_it(tmp_path: Path) -> None:
    with pytest.raises(rivals.RivalsError, match=r"`Model\.learn`"):
        rivals.Model(tmp_path / "model").predict(np.zeros((8, 8), np.uint8))


def test_a_sentence_ends_however_long_what_it_names() -> None:
    text = str(RivalsError(f"The preset is '{'[],' * 100_000}', but must be a word."))
    assert len(text) < 5_000
    assert text.startswith("The preset is '[],")
    assert text.endswith("', but must be a word.")


def test_the_same_mistake_at_both_doors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["learn", "pictures", "--model", "m", "--epochs", "0"])
    assert "--epochs is 0, but must be at least 1." in capsys.readouterr().err
    images = np.zeros((4, 8, 8), np.uint8)
    with pytest.raises(rivals.RivalsError, match=r"^epochs is 0, but must be at least 1\.$"):
        rivals.Model("m").learn((images, ["a", "a", "b", "b"]), "task", epochs=0)
