"""What `make dist` builds is complete: it installs and runs without the repository."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WALK = """
import importlib.util, pathlib, sys
import numpy as np, rivals
from rivals.baselines.controls import Finetune
from rivals.cli.main import main
assert pathlib.Path(rivals.__file__).is_relative_to(sys.argv[1]), rivals.__file__
images = np.random.default_rng(0).integers(0, 50, (20, 16, 16), dtype=np.uint8)
images[:10, :8] += 150
model = rivals.Model("parts")
model.learn((images, ["top"] * 10 + ["none"] * 10), name="halves")  # from the shipped ancestor
assert model.predict(images[0]).label == "top"


class Mine(Finetune):
    pass


log = "csv,tensorboard" if importlib.util.find_spec("tensorboard") else "csv"
stream = rivals.Stream.by_classes((images, [0] * 10 + [1] * 10), classes_per_task=2)
rivals.run(stream, method=Mine, settings={"epochs": 1}, out="mine", log=log)
main(["run", "digits", "--set", "tasks=1", "--set", "epochs=1", "--out", "run"])
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, built from what is in the working tree."""
    pytest.importorskip("build", reason="build is not installed: rivals[dev]")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out)
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def tracked(folder: str) -> set[str]:
    found = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("this is no git repository")
    return set(found.stdout.split())


def test_the_wheel_holds_every_file_of_the_package_and_no_other(dist: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(dist[0]).namelist()
    packed = {f"src/{name}" for name in names if name.startswith("rivals/")}
    assert tracked("src/rivals") <= packed
    others = {name for name in packed - tracked("src/rivals") if not name.endswith(".pyc")}
    assert {Path(name).suffix for name in others} <= {".py"}, others  # of work not committed yet
    assert all(name.startswith(("rivals/", "rivals-")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_sdist_holds_what_the_wheel_is_built_from(dist: tuple[Path, Path]) -> None:
    with tarfile.open(dist[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert tracked("src/rivals") <= names


def test_the_wheel_runs_without_the_repository(dist: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    zipfile.ZipFile(dist[0]).extractall(folder)
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); sys.argv[1:] = [{str(folder)!r}]\n"
    command = [sys.executable, "-c", start + WALK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "results.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["wheel", "sdist"])
def test_it_installs_in_a_clean_environment(
    number: int, dist: tuple[Path, Path], tmp_path: Path
) -> None:
    room = tmp_path / "clean"
    venv.create(room, with_pip=True)
    python = str(room / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    wanted = f"{dist[number]}[tensorboard]"
    done = subprocess.run([*install, wanted], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    command = [python, "-c", WALK, str(room)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "mine" / "log" / "tensorboard").glob("events.*"))
    version = subprocess.run([str(room / "bin" / "rivals"), "--version"], capture_output=True)
    assert version.stdout.startswith(b"rivals 0.2.0")
