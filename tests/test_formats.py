"""Folders that older versions wrote: models are read, runs are refused in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from rivals.errors import RivalsError
from rivals.experiment.run_folder import RunFolder
from rivals.model.model import Model

FIXTURES = Path(__file__).parent / "fixtures"
# What rivals 0.1 answered to these pictures with this model.
ANSWERS = {"0.png": ("low", "0", 0.878231), "8.png": ("high", "8", 0.978631)}


def test_a_model_of_version_0_1_gives_the_same_answers() -> None:
    model = Model(FIXTURES / "model-format-1")
    assert [task.name for task in model.tasks] == ["low", "high"]
    for name, (task, label, confidence) in ANSWERS.items():
        answer = model.predict(FIXTURES / "digits-new" / name)
        assert (answer.task, answer.label) == (task, label)
        assert answer.confidence == pytest.approx(confidence, abs=1e-6)


def test_such_a_model_learns_on_and_keeps_every_bit(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "model-format-1", tmp_path / "model")
    model = Model(tmp_path / "model")
    before = [model.ticket(task).fingerprint() for task in ("low", "high")]
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (24, 8, 8), dtype=np.uint8)
    images[::2, :4] = 0
    model.learn((images, np.arange(24) % 2), name="third", epochs=2)
    assert [task.name for task in model.tasks] == ["low", "high", "third"]
    assert [model.ticket(task).fingerprint() for task in ("low", "high")] == before
    model.drop("low")
    assert model.ticket("high").fingerprint() == before[1]


def test_a_run_of_version_0_1_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps({"format": 1, "benchmark": "digits"}))
    with pytest.raises(RivalsError, match=r"has format 1, .* reads 2; go on with rivals 0\.1"):
        RunFolder(tmp_path).read_config()
