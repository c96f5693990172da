"""Dropping: exact, nothing of the task is left in any file, the others keep every bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rivals.model.dropping import drop
from rivals.model.folder import ModelFolder
from rivals.model.model import Model
from rivals.nn.shared_weight import rounded
from teaching import folder, marks, teach

Refused = Callable[..., str]
Tree = Callable[[Path], dict[str, str]]
SECRET = "Zahnrad-Ξ417"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Four tasks, the second with names that occur nowhere else."""
    teach(folder(tmp_path / "a", (0, 1), 20), tmp_path / "model")
    own = folder(tmp_path / SECRET, (2, 3), 20)
    (own / "digit 2").rename(own / f"{SECRET}-klein")
    (own / "digit 3").rename(own / f"{SECRET}-groß")
    teach(own, tmp_path / "model")
    for name, classes in (("c", (4, 5)), ("d", (6, 7))):
        teach(folder(tmp_path / name, classes, 20), tmp_path / "model")
    return tmp_path / "model"


ZEROS = {0x00, 0x80}  # the bytes of 0.0 and −0.0, which any file may have


def pieces(model: Path, task: str) -> list[bytes]:
    """Bytes that only this task has: rows of its weights, its norms, statistics, names."""
    opened = ModelFolder.open(model)
    network, found = opened.method.network, list[bytes]()
    for layer in network.layers():
        claim = layer.weight.claims[task]
        mine = claim.first & (layer.weight.uses(claim.rows, claim.columns) == 1)
        values = rounded(layer.weight.read(claim.rows, claim.columns)[mine]).flatten()
        found += [part.numpy().tobytes() for part in values.split(8) if len(part) == 8]
        norm = layer.norm.state(task)
        found += [getattr(norm, name).detach().numpy().tobytes() for name in norm.NAMES]
    found += [row.numpy().tobytes() for row in network.heads[task].weight.flatten(1)]
    statistics = opened.method.known[task].kept or {}
    for tensor in (*statistics.values(), *opened.familiarity[task].tensors().values()):
        rows = tensor.flatten()
        found += [part.numpy().tobytes() for part in rows.split(8) if len(part) == 8]
    found += [SECRET.encode(), json.dumps(SECRET).strip('"').encode()]
    return found


def test_nothing_of_it_is_left_and_the_others_keep_every_bit(model: Path) -> None:
    before = marks(model)
    looked_for = pieces(model, SECRET)
    whole = b"".join(path.read_bytes() for path in model.rglob("*") if path.is_file())
    assert sum(piece in whole for piece in looked_for) > 0.95 * len(looked_for)
    dropped = drop(model, SECRET)
    assert dropped.heirs == ["c", "d"]
    assert dropped.freed > 0
    after = marks(model)
    assert after == {name: mark for name, mark in before.items() if name != SECRET}
    for path in model.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert SECRET not in path.name
        told = [piece for piece in looked_for if set(piece) - ZEROS]
        assert not [piece for piece in told if piece in data], path


def test_edges_are_untrained_again_or_move(model: Path) -> None:
    network = ModelFolder.open(model).method.network
    claims = [(layer.weight.claims[SECRET], layer.weight) for layer in network.layers()]
    alone = [weight.uses(c.rows, c.columns) == 1 for c, weight in claims]
    drop(model, SECRET)
    left = ModelFolder.open(model).method.network
    for (claim, _), mine, layer in zip(claims, alone, left.layers(), strict=True):
        weight = layer.weight
        now = weight.read(claim.rows, claim.columns)
        untrained = weight.untrained(claim.rows, claim.columns)
        assert torch.equal(now[mine], untrained[mine])
        assert not bool(weight.uses(claim.rows, claim.columns)[mine].any())


def test_the_name_can_be_learned_again(model: Path, tmp_path: Path) -> None:
    before = marks(model)
    drop(model, SECRET)
    teach(tmp_path / SECRET, model)
    after = marks(model)
    assert list(after) == ["a", "c", "d", SECRET]
    assert {name: after[name] for name in ("a", "c", "d")} == {
        name: before[name] for name in ("a", "c", "d")
    }


def test_all_can_go(model: Path, refused: Refused, accepted: Callable[..., str]) -> None:
    for task in ("c", SECRET, "a", "d"):
        drop(model, task)
    assert not [path for path in model.rglob("*") if path.suffix == ".safetensors"]
    assert "knows no task" in accepted("info", model)
    assert "knows no task" in refused("predict", "x.png", "--model", model)
    assert "has no tasks" in refused("drop", "a", "--model", model)


def test_what_it_says(model: Path, accepted: Callable[..., str], refused: Refused) -> None:
    said = accepted("drop", "a", "--model", model)
    assert f"What '{SECRET}', 'c' and 'd' learned from it stays there" in said
    told = json.loads(accepted("drop", "c", "--model", model, "--json"))
    assert (told["task"], told["heirs"]) == ("c", ["d"])
    assert "did you mean d?" in refused("drop", "dd", "--model", model)
    assert "There is no model" in refused("drop", "d", "--model", model / "nowhere")
    assert not (model / "nowhere").exists()
    left = Model(model)
    left.check()
    assert left.predictor().tasks == (SECRET, "d")


def test_what_a_kill_left_is_swept_by_the_next_writer(model: Path, refused: Refused) -> None:
    """A process that dies after its description is written leaves files that nobody names."""
    left = model / "tasks" / f"{'0' * 16}.safetensors"
    left.write_bytes(b"a dropped task")
    (model / "tasks" / f".{'0' * 16}.safetensors.123.part").write_bytes(b"half a task")
    (model / ".model.json.123.part").write_bytes(b"{")
    refused("drop", "nobody", "--model", model)
    assert not left.exists()
    assert not list(model.rglob("*.part"))
