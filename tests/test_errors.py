"""The same sentence for both front doors: options on the command line, arguments in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rivals
from rivals.cli.main import main
from rivals.errors import RivalsError, command_line

SENTENCE = "--epochs is 0; use --augment crop, or `rivals learn FOLDER --model M` -- at once."


def test_python_names_arguments() -> None:
    error = RivalsError(SENTENCE)
    wanted = "epochs is 0; use augmentation crop, or `rivals learn FOLDER --model M` -- at once."
    assert str(error) == wanted
    with command_line():
        assert str(error) == SENTENCE
    assert str(error) == wanted


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
