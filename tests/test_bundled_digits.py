"""The bundled digits equal scikit-learn's, and neither it nor scipy is loaded without need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rivals.streams.digits import load
from teaching import folder, teach

HEAVY = """
print("heavy:", sorted({name.partition(".")[0] for name in sys.modules} & {"scipy", "sklearn"}))
"""
PREDICT = """
import rivals
print(rivals.Model(sys.argv[1]).predict(sys.argv[2]).label)
"""
RUN = """
from rivals.cli.main import main
try:
    main(["run", "digits", "--set", "epochs=1", "--out", sys.argv[1]])
except SystemExit as exit_:
    assert exit_.code == 0
"""


def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    images, labels, fingerprint = load()
    wanted = load_digits()
    assert (images.dtype, images.shape) == (torch.uint8, (1797, 1, 8, 8))
    assert labels.dtype == torch.int64
    assert np.array_equal(images[:, 0].numpy(), wanted.images)
    assert np.array_equal(labels.numpy(), wanted.target)
    assert fingerprint == "sklearn-digits:65e5b4619795efb4"


def heavy(code: str, *words: str | Path) -> str:
    """Which of scipy and scikit-learn a process has loaded when it ends."""
    line = [sys.executable, "-c", f"import sys\n{code}\n{HEAVY}", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "module", ["model.folder", "streams.digits", "experiment.loop", "baselines.gem", "io.pictures"]
)
def test_importing_loads_neither(module: str) -> None:
    assert heavy(f"import rivals.{module}") == "heavy: []"


def test_predicting_loads_neither(tmp_path: Path) -> None:
    place = folder(tmp_path / "pictures", (0, 1), 4)
    teach(place, tmp_path / "model")
    picture = next((place / "digit 0").iterdir())
    assert heavy(PREDICT, tmp_path / "model", picture) == "heavy: []"


def test_a_run_on_the_digits_loads_neither(tmp_path: Path) -> None:
    assert heavy(RUN, tmp_path / "run") == "heavy: []"
    assert (tmp_path / "run" / "results.json").is_file()


def test_the_check_would_find_them() -> None:
    assert heavy("import scipy") == "heavy: ['scipy']"
