"""The checkpoint folder: whole or not at all, checked on every byte, nothing left lying about."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rivals.errors import RivalsError
from rivals.experiment.checkpoint import Checkpoint, CheckpointFolder
from rivals.learn.state import StatePart

Tree = Callable[[Path], dict[str, str]]


def checkpoint(step: int, fixed: float = 1.0) -> Checkpoint:
    """A checkpoint with a part that stays, one that changes, and one without tensors."""
    generator = torch.Generator().manual_seed(step)
    state = {
        "common": StatePart(facts={"step": step, "shares": [0.1, 1e-9, 1 / 3]}),
        "task/a": StatePart({"weight": torch.full((3, 2), fixed)}, fixed=True),
        "working": StatePart(
            {
                "weight": torch.randn(4, 3, generator=generator),
                "rows": torch.arange(step),
                "mask": torch.tensor([True, False]),
                "bytes": torch.arange(5, dtype=torch.uint8),
            },
            facts={"note": "τ"},
        ),
    }
    return Checkpoint(step, {"tasks": [step]}, {"seconds": 0.25}, state)


def same(found: Checkpoint, expected: Checkpoint) -> bool:
    assert (found.done, found.results, found.measured) == (
        expected.done, expected.results, expected.measured,
    )  # fmt: skip
    assert list(found.state) == list(expected.state)
    for name, part in expected.state.items():
        assert found.state[name].facts == part.facts
        assert found.state[name].tensors.keys() == part.tensors.keys()
        for key, tensor in part.tensors.items():
            assert found.state[name].tensors[key].dtype == tensor.dtype
            assert torch.equal(found.state[name].tensors[key], tensor)
    return True


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "a" / "b")
    assert not folder.exists()
    for step in (3, 4):
        folder.save(checkpoint(step))
        assert folder.exists()
        assert same(CheckpointFolder(folder.folder).load(), checkpoint(step))


def test_tensors_may_share_memory_and_be_views(tmp_path: Path) -> None:
    matrix = torch.arange(12.0).view(3, 4)
    state = {
        "a": StatePart({"whole": matrix, "again": matrix, "turned": matrix.T, "row": matrix[1]})
    }
    CheckpointFolder(tmp_path).save(Checkpoint(0, {}, {}, state))
    loaded = CheckpointFolder(tmp_path).load().state["a"].tensors
    assert {k: t.tolist() for k, t in loaded.items()} == {
        k: t.tolist() for k, t in state["a"].tensors.items()
    }


def test_what_is_loaded_can_be_changed_without_changing_the_files(
    tmp_path: Path, tree: Tree
) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint(3))
    before = tree(tmp_path)
    folder.load().state["working"].tensors["weight"].zero_()
    assert tree(tmp_path) == before
    assert same(folder.load(), checkpoint(3))


def test_a_fixed_part_is_written_once(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint(1))
    file = json.loads(folder.manifest.read_text())["parts"]["task/a"]["file"]
    written = (tmp_path / file).stat()
    # A fixed part is not even looked at again, so its new value must not be found afterwards.
    folder.save(checkpoint(2, fixed=9.0))
    assert (tmp_path / file).stat().st_mtime_ns == written.st_mtime_ns
    assert (tmp_path / file).stat().st_ino == written.st_ino
    assert same(folder.load(), checkpoint(2, fixed=1.0))


def test_a_fixed_part_is_not_written_again_by_the_next_process(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path).save(checkpoint(1))
    folder = CheckpointFolder(tmp_path)
    file = json.loads(folder.manifest.read_text())["parts"]["task/a"]["file"]
    written = (tmp_path / file).stat().st_ino
    folder.save(checkpoint(2))
    assert (tmp_path / file).stat().st_ino == written


def test_files_that_nothing_names_are_swept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint(1))
    (tmp_path / "feedfeedfeedfeed.safetensors").write_bytes(b"of a killed run")
    (tmp_path / ".manifest.json.123.part").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not ours")
    folder.save(checkpoint(2))
    parts = json.loads(folder.manifest.read_text())["parts"].values()
    named = {part["file"] for part in parts if "file" in part}
    assert len(named) == 2
    assert {path.name for path in tmp_path.iterdir()} == {*named, "manifest.json", "notes.txt"}
    assert same(folder.load(), checkpoint(2))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_and_the_old_ones_kept(
    value: float, tmp_path: Path, tree: Tree
) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint(1))
    before, broken = tree(tmp_path), checkpoint(2)
    broken.state["working"].tensors["weight"][2, 1] = value
    with pytest.raises(RivalsError, match=r"no longer finite \(working, weight\).*last good state"):
        folder.save(broken)
    assert tree(tmp_path) == before
    assert same(folder.load(), checkpoint(1))


def test_any_changed_bit_is_noticed(tmp_path: Path) -> None:
    original = tmp_path / "original"
    CheckpointFolder(original).save(checkpoint(7))
    rng = random.Random(0)
    for file in sorted(original.iterdir()):
        size = file.stat().st_size
        for place in sorted(rng.sample(range(size), min(size, 60))):
            copy = tmp_path / "copy"
            shutil.copytree(original, copy)
            data = bytearray(file.read_bytes())
            data[place] ^= 1 << rng.randrange(8)
            (copy / file.name).write_bytes(data)
            try:
                found = CheckpointFolder(copy).load()
            except RivalsError:
                pass
            else:
                # The one thing that may change unnoticed is white space between JSON values.
                assert file.name == "manifest.json"
                assert same(found, checkpoint(7))
            shutil.rmtree(copy)


def test_any_truncation_is_noticed(tmp_path: Path) -> None:
    original = tmp_path / "original"
    CheckpointFolder(original).save(checkpoint(7))
    for file in sorted(original.iterdir()):
        size = file.stat().st_size
        for length in (0, 1, size // 2, size - 2):
            copy = tmp_path / "copy"
            shutil.copytree(original, copy)
            (copy / file.name).write_bytes(file.read_bytes()[:length])
            with pytest.raises(RivalsError, match="damaged"):
                CheckpointFolder(copy).load()
            shutil.rmtree(copy)


def test_a_missing_part_is_noticed(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint(1))
    file = json.loads(folder.manifest.read_text())["parts"]["working"]["file"]
    (tmp_path / file).unlink()
    with pytest.raises(RivalsError, match=rf"{file} cannot be read \(No such file"):
        folder.load()


@pytest.mark.parametrize("version", [2, 0, None, "1"])
def test_another_format_is_refused(version: object, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(checkpoint(1))
    manifest = {**json.loads(folder.manifest.read_text()), "format": version}
    folder.manifest.write_text(json.dumps(manifest))
    with pytest.raises(RivalsError, match=rf"has format {version}, and this version reads 1"):
        folder.load()


def test_a_manifest_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "inside")
    folder.save(checkpoint(1))
    text = folder.manifest.read_text()
    file = json.loads(text)["parts"]["working"]["file"]
    (folder.folder / file).rename(tmp_path / file)
    folder.manifest.write_text(text.replace(file, f"../{file}"))
    with pytest.raises(RivalsError, match="damaged"):
        folder.load()
