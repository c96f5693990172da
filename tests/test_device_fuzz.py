"""Model folders from others: whatever is in them, they open safely or are refused in a sentence."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rivals.errors import RivalsError
from rivals.io.files import digest
from rivals.model import limits, task_file
from rivals.model.folder import ModelFolder
from rivals.model.manifest import checksum, file_name
from rivals.model.model import Model
from rivals.nn.network_plan import networks
from teaching import folder, marks, teach

QUICKLY = settings(
    max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("good")
    for name, classes in (("a", (0, 1)), ("b", (2, 3))):
        teach(folder(place / name, classes, 6), place / "model", epochs=1)
    return place / "model"


@pytest.fixture
def model(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "model")
    return tmp_path / "model"


def content(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / "model.json").read_text())
    return found


def put(model: Path, value: Any) -> None:
    """Write a description with the checksum it should have: an attacker can count, too."""
    if isinstance(value, dict):
        value = {**value, "sha256": checksum(value)}
    (model / "model.json").write_text(json.dumps(value))


def used(model: Path) -> None:
    """All that is done with a model that somebody sent."""
    opened = ModelFolder.open(model)
    opened.room()
    opened.overlap()
    for task in opened.tasks:
        opened.winners(task.name)
    Model(model).check()


def safely(model: Path) -> str:
    """Opened, or refused in one sentence."""
    sentence = ""
    try:
        used(model)
    except RivalsError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert len(sentence) < 500
    return sentence


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from(["../../x", "/etc/passwd", "os:system", "mlp", "resnet-small", 8, 1, 3, 10**9]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [here]
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            found += paths(inner, (*here, key))
    return found


@QUICKLY
@given(data=st.data())
def test_a_mutated_description(good: Path, data: st.DataObject) -> None:
    before = (good / "model.json").read_bytes()
    changed = content(good)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from([path for path in paths(changed) if path]))
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        if data.draw(st.booleans()):
            inner[path[-1]] = data.draw(VALUES)
        else:
            del inner[path[-1]]
    try:
        with contextlib.suppress(ValueError):
            put(good, changed)
            safely(good)
    finally:
        (good / "model.json").write_bytes(before)


@QUICKLY
@given(text=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_any_bytes_as_a_description(good: Path, text: bytes) -> None:
    before = (good / "model.json").read_bytes()
    try:
        (good / "model.json").write_bytes(text)
        assert safely(good)
    finally:
        (good / "model.json").write_bytes(before)


@QUICKLY
@given(data=st.data())
def test_a_mutated_task_file(good: Path, data: st.DataObject) -> None:
    """Bytes changed, cut off or added, with checksums to match."""
    before, described = content(good), (good / "model.json").read_bytes()
    entry = before["tasks"][0]
    path = good / "tasks" / entry["file"]
    kept = path.read_bytes()
    length = 8 + struct.unpack("<Q", kept[:8])[0]
    bytes_ = bytearray(kept)
    for _ in range(data.draw(st.integers(1, 3))):
        high = data.draw(st.sampled_from([8, length, len(bytes_)]))
        bytes_[data.draw(st.integers(0, high - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(bytes_), len(bytes_) - 1, length, 8, 3]))
    changed = bytes(bytes_[:cut]) + data.draw(st.sampled_from([b"", b"more"]))
    try:
        written = put_task(good, before, changed)
        safely(good)
    finally:
        written.unlink()
        path.write_bytes(kept)
        (good / "model.json").write_bytes(described)


def put_task(model: Path, described: dict[str, Any], data: bytes) -> Path:
    """Another file for the first task, with name and checksums to match; gives its path."""
    changed, sha256 = copy.deepcopy(described), digest(data)
    file = {"file": file_name(sha256), "sha256": sha256, "bytes": max(1, len(data))}
    changed["tasks"][0] |= file
    path = model / "tasks" / file_name(sha256)
    path.write_bytes(data)
    put(model, changed)
    return path


def with_header(model: Path, change: dict[str, Any]) -> None:
    """Replace entries in the header of a task's file, keeping its data."""
    described = content(model)
    path = model / "tasks" / described["tasks"][0]["file"]
    kept = path.read_bytes()
    length = struct.unpack("<Q", kept[:8])[0]
    header = {**json.loads(kept[8 : 8 + length]), **change}
    text = json.dumps(header).encode()
    put_task(model, described, struct.pack("<Q", len(text)) + text + kept[8 + length :])


@pytest.mark.parametrize(
    "change",
    [
        {"head.weight": {"dtype": "F32", "shape": [10**9, 10**9, 1], "data_offsets": [0, 8]}},
        {"head.weight": {"dtype": "F64", "shape": [2, 100, 1], "data_offsets": [0, 1600]}},
        {"layer0.claimed": {"dtype": "F32", "shape": [10**12, 1], "data_offsets": [0, 4]}},
        {"layer0.claimed": {"dtype": "F32", "shape": [-1, 1], "data_offsets": [0, 4]}},
        {"levels": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}},
        {"more": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        {"rivals0.winners.99": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}},
    ],
)
def test_shapes_are_checked_before_memory_is_taken(model: Path, change: dict[str, Any]) -> None:
    with_header(model, change)
    assert "is damaged" in safely(model)


HUGE = {
    "input_shape": [3, 10**6, 10**6],
    "units": [10**9, 8],
    "network": {"name": "mlp", "widths": [10**9, 10**9], "units": 8},
}


@pytest.mark.parametrize("key", HUGE)
def test_sizes_are_checked_before_memory_is_taken(model: Path, key: str) -> None:
    put(model, {**content(model), key: HUGE[key]})
    assert "is not as it should be at" in safely(model)


@pytest.mark.parametrize("name", ["os:system", "my_module:network", "nothing", "../../mlp"])
def test_nothing_is_imported_by_name(model: Path, name: str) -> None:
    (model.parent / "my_module.py").write_text("raise SystemExit('executed')")
    described = content(model)
    described["network"]["name"] = name
    put(model, described)
    assert "is not as it should be at network/name" in safely(model)


def test_models_of_32_bits_are_still_read(model: Path) -> None:
    before, description = marks(model), content(model)
    for task in description["tasks"]:
        file = model / "tasks" / task["file"]
        tensors = safetensors.torch.load_file(file)
        claimed = [tensor for name, tensor in tensors.items() if name.endswith("claimed")]
        assert claimed
        assert all(tensor.dtype == torch.float16 for tensor in claimed)
        wide = {name: t.float() if name.endswith("claimed") else t for name, t in tensors.items()}
        name, sha256, data = task_file.encode(wide)
        (model / "tasks" / name).write_bytes(data)
        task |= {"file": name, "sha256": sha256, "bytes": len(data)}
    put(model, description)
    assert marks(model) == before


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "/etc/passwd", "a/../b.safetensors", f"{'0' * 16}.pt", ""]
)
def test_names_cannot_leave_the_folder(model: Path, name: str) -> None:
    described = content(model)
    described["tasks"][0]["file"] = name
    put(model, described)
    assert "is not as it should be at tasks/0/file" in safely(model)


def test_deep_and_long_descriptions(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model / "model.json").write_text("[" * 200_000)
    assert "is not valid JSON" in safely(model)
    (model / "model.json").write_text('{"format": NaN}')
    assert "is not valid JSON" in safely(model)
    monkeypatch.setattr(limits, "DESCRIPTION", 1000)
    (model / "model.json").write_text(" " * 2000)
    assert "it has 2,000 bytes, at most 1,000" in safely(model)


def test_a_newer_format_is_named(model: Path) -> None:
    put(model, {**content(model), "format": 3})
    assert "has format 3, and this version reads 1 and 2" in safely(model)


def test_the_networks_of_models_are_there() -> None:
    assert all(name in networks for name in limits.NETWORKS)
