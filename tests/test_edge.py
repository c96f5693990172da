"""Artefacts run without torch, in little memory; pictures of all kinds; what cannot be run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import room
from rivals import edge
from rivals.cli.main import main
from rivals.edge import command, runtime_onnx
from rivals.edge.artefact_files import check_export
from rivals.edge.card import read_card
from rivals.edge.onnx_file import INNER, REFUSED, onnx_card
from rivals.errors import RivalsError
from rivals.io.checksum import has_checksum, with_checksum
from rivals.io.memory_limit import limited_memory
from rivals.io.pictures import to_pixels
from toys import lessons

Exports = dict[str, Any]
Spawn = Callable[..., Any]
LIMIT = 64 * 1024  # kB


def digits(count: int = 20) -> tuple[Any, Any]:
    """Test images of the first task of the run that was exported, and their labels."""
    test = lessons(1, tasks=2)[0].test
    return test.images[:count].numpy(), test.labels[:count].numpy()


def draw(pixels: Any, path: Path) -> Path:
    """One of these images as a picture file, its 16 being white."""
    Image.fromarray(np.rint(pixels[0] * (255 / 16)).astype(np.uint8)).save(path)
    return path


# What is imported, and what it takes --------------------------------------------------------------


def test_importing_it_imports_no_torch(exported: Exports, tmp_path: Path, spawn: Spawn) -> None:
    picture = draw(digits()[0][0], tmp_path / "digit.png")
    check = (
        "import sys; from rivals.edge.command import main\n"
        f"assert main({[exported['ticket.onnx']['path'], str(picture)]!r}) == 0\n"
        "heavy = ('torch', 'scipy', 'sklearn', 'onnx', 'yaml', 'typer', 'rich', 'safetensors')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if 'VmHWM' in line))"
    )
    printed, errors = spawn("-c", check).communicate()
    assert errors == ""
    _, heavy, memory = printed.splitlines()
    assert heavy == "[]"
    assert int(memory) <= LIMIT, "kB, the most that was ever resident"


@pytest.mark.parametrize("held_by", ["control group", "guard"])
def test_it_runs_in_a_room_where_torch_cannot(
    held_by: str, exported: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with room.groups() as folders:
        denied = folders is None
    if held_by == "guard":
        monkeypatch.setattr(room, "groups", room.denied)
    elif denied:
        pytest.skip("No control group may be made here; the guard holds the process instead.")
    picture = draw(digits()[0][0], tmp_path / "digit.png")
    words = ["-m", "rivals.edge", exported["ticket.onnx"]["path"], str(picture)]
    status, printed, told = room.run([sys.executable, *words], seconds=60)
    assert (status, told) == (0, "")
    assert printed.startswith(f"{picture}: ")
    status, printed, _ = room.run([sys.executable, "-c", "import torch; print('here')"], seconds=60)
    assert (status, printed) == (-9, ""), "torch fits into 64 MB"


# Answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ticket.onnx", "ticket.ort", "float.onnx", "int8.onnx"])
def test_a_picture_is_classified_as_its_pixels_are(
    name: str, exported: Exports, tmp_path: Path
) -> None:
    images, labels = digits(40)
    ticket = edge.load(exported[name]["path"])
    scores = ticket.scores(images)
    assert scores.shape == (40, 5)
    assert (scores.argmax(1) == labels).mean() > 0.6
    for number in range(3):
        answer = ticket.classify(draw(images[number], tmp_path / "digit.png"))
        shares = np.exp(scores[number]) / np.exp(scores[number]).sum()
        assert answer.label == str(scores[number].argmax())
        assert answer.confidence == pytest.approx(shares.max(), abs=1e-6)
        assert answer.task == "0-1-2-3-4"
    assert [answer.label for answer in ticket.answers(images)] == [
        str(label) for label in scores.argmax(1)
    ]


def test_many_images_are_one_by_one(exported: Exports) -> None:
    images = digits(70)[0]
    ticket = edge.load(exported["ticket.onnx"]["path"], threads=2)
    alone = np.concatenate([ticket.scores(image[None]) for image in images])
    np.testing.assert_allclose(ticket.scores(images), alone, atol=1e-5)


def test_a_whole_model_names_the_task(exported: Exports, tmp_path: Path) -> None:
    model = edge.load(exported["all.onnx"]["path"])
    assert model.card.tasks == ("0-1-2-3-4", "5-6-7-8-9")
    for lesson in lessons(2, tasks=2):
        answers = model.answers(lesson.test.images.numpy())
        right = [answer.task == lesson.task.name for answer in answers]
        assert np.mean(right) > 0.8
        assert all(answer.label in answer.task for answer in answers)
    with pytest.raises(RivalsError, match="holds 2 tasks and answers with the task"):
        model.scores(lesson.test.images.numpy())
    assert model.classify(draw(digits()[0][0], tmp_path / "a.png")).confidence > 0.2


def test_images_of_another_shape_or_type_are_refused(exported: Exports) -> None:
    ticket = edge.load(exported["ticket.onnx"]["path"])
    for images in (
        np.zeros((1, 1, 9, 8), np.uint8),
        np.zeros((1, 8, 8), np.uint8),
        np.zeros((2, 1, 8, 8), np.float32),
        np.zeros((0, 1, 8, 8), np.uint8),
    ):
        with pytest.raises(RivalsError, match=r"takes uint8 images \(n, 1 × 8 × 8\)"):
            ticket.scores(images)


def test_the_command(exported: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = [str(draw(image, tmp_path / f"{n}.png")) for n, image in enumerate(digits(2)[0])]
    path = exported["all.onnx"]["path"]
    assert command.main([path, *pictures]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == pictures
    assert all(" %  task " in line for line in lines)
    assert command.main([path, *pictures, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[0].keys() == {"image", "label", "confidence", "task"}
    assert command.main([path, str(tmp_path / "nothing.png")]) == 2
    assert capsys.readouterr().err == f"rivals-edge: There is no picture {tmp_path}/nothing.png.\n"
    (tmp_path / "program").mkdir()
    assert command.main([str(tmp_path / "program"), *pictures]) == 2
    assert "allow it with --run-native" in capsys.readouterr().err  # its own option, not Python's


# Pictures -----------------------------------------------------------------------------------------

GREY = np.arange(0, 256, 16, dtype=np.uint8).reshape(4, 4)
SHAPE = (1, 4, 4)


def stored(picture: Image.Image, path: Path, **options: Any) -> Path:
    picture.save(path, **options)
    return path


def test_the_same_grey_in_many_ways(tmp_path: Path) -> None:
    plain = Image.fromarray(GREY)
    deep = Image.fromarray(GREY.astype(np.uint16) * 257)
    clear = np.dstack([GREY, np.full((4, 4), 255, np.uint8)])
    for name, picture in {
        "L": plain, "RGB": plain.convert("RGB"), "P": plain.convert("P"), "16 bits": deep,
        "LA": Image.fromarray(clear, "LA"), "RGBA": plain.convert("RGBA"),
    }.items():  # fmt: skip
        found = to_pixels(stored(picture, tmp_path / "a.png"), SHAPE)
        assert found.dtype == np.uint8, name
        np.testing.assert_array_equal(found[0], GREY, name)
    found = to_pixels(stored(deep, tmp_path / "a.tiff"), SHAPE)
    np.testing.assert_array_equal(found[0], GREY)
    colour = to_pixels(stored(plain, tmp_path / "a.png"), (3, 4, 4))
    np.testing.assert_array_equal(colour, np.stack([GREY] * 3))
    ink = to_pixels(stored(plain.convert("RGB").convert("CMYK"), tmp_path / "a.jpg"), SHAPE)
    assert np.abs(ink[0].astype(int) - GREY).max() < 40
    black = to_pixels(stored(Image.new("1", (4, 4)), tmp_path / "a.png"), SHAPE)
    assert not black.any()


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    hidden = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    assert (to_pixels(stored(hidden, tmp_path / "a.png"), (3, 4, 4)) == 255).all()
    palette = Image.fromarray(GREY).convert("P")
    path = stored(palette, tmp_path / "a.png", transparency=0)
    found = to_pixels(path, SHAPE)[0]
    assert found[0, 0] == 255
    np.testing.assert_array_equal(found.ravel()[1:], GREY.ravel()[1:])


def test_a_camera_that_was_held_upright(tmp_path: Path) -> None:
    turned = Image.fromarray(np.rot90(GREY, 1).copy())
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° clockwise
    path = stored(turned, tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(to_pixels(path, SHAPE)[0], GREY)


def test_sizes_and_scales(tmp_path: Path) -> None:
    path = stored(
        Image.fromarray(GREY).resize((40, 12), Image.Resampling.NEAREST), tmp_path / "a.png"
    )
    assert to_pixels(path, (3, 5, 7)).shape == (3, 5, 7)
    white = stored(Image.new("RGB", (9, 9), "white"), tmp_path / "b.png")
    assert (to_pixels(white, SHAPE, scale=16) == 16).all()


def test_what_is_no_picture(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)).save(
        whole, "PNG"
    )
    for name, data in {
        "text": b"hello", "empty": b"", "cut off": whole.getvalue()[:900],
        "header": whole.getvalue()[:20],
    }.items():  # fmt: skip
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(RivalsError, match="is not a picture that can be read") as told:
            to_pixels(path, SHAPE)
        assert "\n" not in str(told.value)
    fractions = stored(Image.new("F", (4, 4)), tmp_path / "a.tiff")
    with pytest.raises(RivalsError, match="is not a picture that can be read"):
        to_pixels(fractions, SHAPE)
    with pytest.raises(RivalsError, match="is a folder"):
        to_pixels(tmp_path, SHAPE)
    with pytest.raises(RivalsError, match="takes 2 channels, and a picture has 1 or 3"):
        to_pixels(tmp_path / "text", (2, 4, 4))


# What cannot be run -------------------------------------------------------------------------------


def test_what_is_no_artefact(exported: Exports, tmp_path: Path) -> None:
    data = Path(exported["ticket.onnx"]["path"]).read_bytes()
    for name, content in {
        "cut.onnx": data[:-100], "text.onnx": b"hello", "empty.ort": b"",
        "cut.ort": b"\0\0\0\0ORTM", "groups.onnx": b"\x0b" * 99,
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RivalsError, match=rf"{name} is not an artefact of rivals"):
            edge.load(tmp_path / name)
    with pytest.raises(RivalsError, match=r"There is no artefact nowhere\.onnx; make one with"):
        edge.load("nowhere.onnx")
    (tmp_path / "ticket.bin").write_bytes(data)
    with pytest.raises(
        RivalsError, match=r"expected a file that ends in \.onnx, \.ort, \.tflite, \.pte"
    ):
        edge.load(tmp_path / "ticket.bin")


def with_card(source: str | Any, out: Path, text: str | None) -> Path:
    """The same graph with another card, under a checksum that fits, if it has a field for it."""
    import onnx

    model = onnx.load(source) if isinstance(source, str) else source
    del model.metadata_props[:]
    if text is not None:
        entry = model.metadata_props.add()
        entry.key, entry.value = "rivals", text
    data = model.SerializeToString()
    out.write_bytes(with_checksum(data) if has_checksum(data) else data)
    return out


def card_of(path: str) -> dict[str, Any]:
    text = onnx_card(Path(path).read_bytes())
    assert text
    return dict(json.loads(text))


def test_a_card_of_another_version_or_none(exported: Exports, tmp_path: Path) -> None:
    source = exported["ticket.onnx"]["path"]
    newer = json.dumps({"rivals": 3, "labels": []})
    for text, sentence in {
        None: "has no card of rivals",
        newer: "has version 3, and this version of rivals reads 1 and 2",
        "{": "is damaged: it is not valid JSON; export it again",
        "[]": "is damaged: it holds no JSON object; export it again",
        '{"rivals": ' + "[" * 100_000: "is damaged",
        '{"rivals": 1, "a": ' + "[" * 100 + "]" * 100 + "}": "nested too deeply",
        " " * 5_000_000: "has more than 4,194,304 bytes",
        '{"rivals": 1}': "is damaged .KeyError",
    }.items():
        with pytest.raises(RivalsError, match=sentence) as told:
            edge.load(with_card(source, tmp_path / "a.onnx", text))
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "change",
    [{"classes": []}, {"classes": 7}, {"classes": [1, 2]}, {"task": None}, {"tasks": []},
     {"input_shape": [1, 8]}, {"input_shape": [0, 8, 8]}, {"input_shape": [1, "8", 8]},
     {"input_shape": [3, 4096, 4096]}, {"input_shape": [1, 1, 10**30]}, {"accuracy": "good"},
     {"preprocessing": {}}, {"preprocessing": {"scale": 0, "mean": [], "std": []}},
     {"preprocessing": {"scale": float("inf"), "mean": [], "std": []}},
     {"preprocessing": {"scale": 10**400, "mean": [], "std": []}},
     {"preprocessing": {"scale": 1, "mean": [1e300], "std": [1]}, "raw_input": False},
     {"preprocessing": {"scale": 1, "mean": [0.5], "std": [0]}, "raw_input": False},
     {"raw_input": False}],
)  # fmt: skip
def test_a_card_that_makes_no_sense(change: dict[str, Any]) -> None:
    good = {
        "rivals": 1, "task": "t", "classes": ["a", "b"], "input_shape": [1, 8, 8],
        "preprocessing": {"scale": 255.0, "mean": [], "std": []}, "raw_input": True,
    }  # fmt: skip
    assert read_card(json.dumps(good), Path("x")).classes == (("a", "b"),)
    text = json.dumps({**good, **change})
    with pytest.raises(RivalsError, match="The card of x is damaged"):
        read_card(text, Path("x"))
    with pytest.raises(RivalsError, match="The card of x is damaged"):
        read_card(text.replace("Infinity", "1e999"), Path("x"))


# What comes from elsewhere ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ticket.onnx", "ticket.ort", "all.onnx"])
def test_every_byte_is_under_the_checksum(name: str, exported: Exports, tmp_path: Path) -> None:
    whole, path = Path(exported[name]["path"]).read_bytes(), tmp_path / name
    swapped = whole.replace(b'["0", "1"', b'["1", "0"')
    assert swapped != whole
    changed = [swapped]
    for place in range(0, len(whole), max(1, len(whole) // 300)):
        changed.append(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    for data in changed:
        path.write_bytes(data)
        with pytest.raises(RivalsError, match="export it again"):
            check_export(path)
    path.write_bytes(swapped)
    with pytest.raises(RivalsError, match="was altered: its checksum does not fit"):
        edge.load(path)
    path.write_bytes(whole)
    assert check_export(path)[-1] == "The checksum over the card and the model fits."


def test_exports_of_0_1_are_still_read(exported: Exports, tmp_path: Path) -> None:
    source = exported["ticket.onnx"]["path"]
    facts = {**card_of(source), "rivals": 1}
    stated = facts.pop("sha256")
    old = with_card(source, tmp_path / "old.onnx", json.dumps(facts))
    images = digits()[0]
    np.testing.assert_array_equal(edge.load(old).scores(images), edge.load(source).scores(images))
    assert "It has no checksum" in check_export(old)[-1]
    newer = with_card(source, tmp_path / "a.onnx", json.dumps({**facts, "rivals": 2}))
    with pytest.raises(RivalsError, match="was altered"):
        edge.load(newer)
    facts["sha256"] = stated  # one that is there must fit, whatever the version says
    stated_too = with_card(source, tmp_path / "a.onnx", json.dumps(facts))
    edge.load(stated_too)
    stated_too.write_bytes(stated_too.read_bytes().replace(b'["0", "1"', b'["1", "0"'))
    with pytest.raises(RivalsError, match="was altered"):
        edge.load(stated_too)


def graph(nodes: list[Any], stored: list[Any] = [], **facts: Any) -> Any:  # noqa: B006
    """An ONNX file by hand: uint8 images of 8 × 8 in, `scores` out."""
    from onnx import TensorProto, helper

    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", 1, 8, 8])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "g", [images], [scores], stored)
    versions = [helper.make_opsetid("", 20)]
    return helper.make_model(made, opset_imports=versions, ir_version=10, **facts)


def node(word: str, inputs: str, output: str, **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(word, inputs.split(), [output], **attributes)


def number(name: str, *values: int) -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def bomb(word: str) -> Any:
    """A graph of some hundred bytes that makes 4 GB of one number."""
    size, cast = number("size", 1_000_000_000), node("Cast", "images", "f", to=1)
    first = [node("ConstantOfShape", "size", "large")]
    if word == "run":
        first = [node("ReduceSum", "f", "one", keepdims=0), node("Expand", "one size", "large")]
    last = [node("ReduceSum", "large", "sum", keepdims=0), node("Add", "f sum", "scores")]
    return graph([cast, *first, *last], [size])


@pytest.mark.parametrize("word", ["constant", "run"])
def test_a_small_file_cannot_take_the_memory(
    word: str, exported: Exports, tmp_path: Path, spawn: Spawn
) -> None:
    """408 bytes took 3.7 GB."""
    pytest.importorskip("resource")
    card = json.dumps(card_of(exported["ticket.onnx"]["path"]))
    path = with_card(bomb(word), tmp_path / "bomb.onnx", card)
    picture = draw(digits()[0][0], tmp_path / "digit.png")
    code = (
        "import sys; from rivals.edge.command import main\n"
        "status = main(sys.argv[1:])\n"
        "from rivals.io.process_memory import peak_memory\n"
        "print(status, peak_memory() // 2**20)"
    )
    printed, errors = spawn("-c", code, path, picture).communicate(timeout=60)
    status, peak = (int(each) for each in printed.split())
    assert (status, errors.count("\n")) == (2, 1), errors
    assert "could not be run" in errors
    assert peak < 200, "MB"


@pytest.mark.parametrize("constant", [True, False])
def test_a_small_file_cannot_take_for_ever(
    constant: bool, exported: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some kilobytes asked for hours, when they were loaded or when they were run."""
    monkeypatch.setattr(runtime_onnx, "SECONDS", 0.5)
    first = [node("Cast", "images", "f", to=1), node("ReduceSum", "f", "one", keepdims=0)]
    first += [node("ConstantOfShape" if constant else "Expand", "size" if constant else "one size",
                   "m0")]  # fmt: skip
    work = [node("MatMul", f"m{number} m0", f"m{number + 1}") for number in range(5000)]
    last = [node("ReduceSum", "m5000", "sum", keepdims=0), node("Add", "f sum", "scores")]
    card = json.dumps(card_of(exported["ticket.onnx"]["path"]))
    made = graph([*first, *work, *last], [number("size", 1000, 1000)])
    path = with_card(made, tmp_path / "slow.onnx", card)
    began = time.monotonic()
    with pytest.raises(RivalsError, match=r"took more than 0\.5 s for 1 images"):
        edge.load(path).answers(digits(1)[0])
    assert time.monotonic() - began < 20
    monkeypatch.setattr(runtime_onnx, "SECONDS", 30)
    edge.load(exported["ticket.onnx"]["path"]).answers(digits(1)[0])


def test_graphs_that_hold_more_than_layers(exported: Exports, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    card = json.dumps(card_of(exported["ticket.onnx"]["path"]))
    inside = helper.make_graph([], "inside", [], [])
    cast = node("Cast", "images", "f", to=1)
    away = TensorProto(name="w", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    away.external_data.add(key="location", value="/etc/passwd")
    endless = [cast, node("Loop", "", "scores", body=inside)]
    several = graph([cast])
    several.functions.add(name="f", domain="d")
    sparse = graph([cast])
    sparse.graph.sparse_initializer.add()
    constant = [cast, node("Constant", "", "w", value=away)]
    two = graph([cast])
    with_card(two, tmp_path / "two.onnx", card)
    twice = (tmp_path / "two.onnx").read_bytes()
    for model, sentence in [
        (graph([cast], [away]), "it refers to another file"),
        (graph(constant), "it refers to another file"),
        (graph(endless), "an operator holds a graph of its own"),
        (several, "an operator holds a graph of its own"),
        (sparse, "it holds sparse weights"),
    ]:
        with pytest.raises(RivalsError, match=sentence):
            edge.load(with_card(model, tmp_path / "a.onnx", card))
    (tmp_path / "a.onnx").write_bytes(twice + twice)
    with pytest.raises(RivalsError, match="it has two cards"):
        edge.load(tmp_path / "a.onnx")
    (tmp_path / "a.onnx").write_bytes(b"\x08\x01" * 1_100_000)
    with pytest.raises(RivalsError, match="more parts than any ticket"):
        edge.load(tmp_path / "a.onnx")


def test_an_ort_file_with_a_loop_is_refused(exported: Exports, tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    from rivals.deploy.to_onnx import convert

    go = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    value = helper.make_tensor_value_info("value", TensorProto.FLOAT, None)
    more = helper.make_tensor_value_info("more", TensorProto.FLOAT, None)
    on = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
    steps = [node("Identity", "go", "on"), node("Add", "value value", "more")]
    body = helper.make_graph(steps, "body", [turn, go, value], [on, more])
    many = helper.make_tensor("many", TensorProto.INT64, [], [10])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    cast = node("Cast", "images", "f", to=1)
    loop = helper.make_node("Loop", ["many", "yes", "f"], ["scores"], body=body)
    card = json.dumps(card_of(exported["ticket.onnx"]["path"]))
    with_card(graph([cast, loop], [many, yes]), tmp_path / "a.onnx", card)
    convert(tmp_path / "a.onnx", tmp_path / "a.ort")
    with pytest.raises(RivalsError, match="an operator holds a graph of its own"):
        edge.load(tmp_path / "a.ort")


def test_the_numbers_of_fields_are_those_of_onnx() -> None:
    import onnx

    kinds = {"model": onnx.ModelProto, "graph": onnx.GraphProto, "node": onnx.NodeProto,
             "attribute": onnx.AttributeProto, "tensor": onnx.TensorProto}  # fmt: skip
    names = {
        (kind, number): kinds[kind].DESCRIPTOR.fields_by_number[number].name
        for table in (INNER, REFUSED)
        for kind, fields in table.items()
        for number in fields
    }
    assert set(names.values()) == {
        "graph", "metadata_props", "training_info", "functions", "node", "initializer",
        "sparse_initializer", "attribute", "t", "tensors", "g", "graphs", "sparse_tensor",
        "sparse_tensors", "external_data",
    }  # fmt: skip
    holders = {  # every way to a tensor or a graph is known
        (kind, field.name)
        for kind, message in kinds.items()
        for field in message.DESCRIPTOR.fields
        if field.message_type and field.message_type.name in ("TensorProto", "GraphProto")
    }
    assert holders <= {(kind, name) for (kind, _), name in names.items()}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [([float("nan"), 0, 0, 0, 0], "numbers that are not finite, which is no class"),
     ([float("inf"), 0, 0, 0, 0], "numbers that are not finite, which is no class"),
     ([1.0, 2.0], "but its card names 5 classes"), ([], "does not give what its card says")],
)  # fmt: skip
def test_scores_that_are_no_answer(
    values: list[float], sentence: str, exported: Exports, tmp_path: Path
) -> None:
    from onnx import TensorProto, helper

    fixed = helper.make_tensor("fixed", TensorProto.FLOAT, [len(values)], values)
    zero = [node("Cast", "images", "f", to=1), node("ReduceMin", "f axes", "none", keepdims=0),
            node("Mul", "none empty", "zero"), node("Unsqueeze", "zero last", "column"),
            node("Add", "column fixed", "scores")]  # fmt: skip
    if not values:
        zero = [node("Cast", "images", "f", to=1), node("ReduceMin", "f", "scores", keepdims=0)]
    stored = [fixed, number("axes", 1, 2, 3), number("last", 1),
              helper.make_tensor("empty", TensorProto.FLOAT, [], [0.0])]  # fmt: skip
    card = json.dumps(card_of(exported["ticket.onnx"]["path"]))
    ticket = edge.load(with_card(graph(zero, stored), tmp_path / "a.onnx", card))
    for ask in (ticket.answers, ticket.decide, ticket.scores):
        with pytest.raises(RivalsError, match=sentence):
            ask(digits(3)[0])


def test_tasks_and_classes_that_the_card_does_not_have(exported: Exports, tmp_path: Path) -> None:
    source = exported["all.onnx"]["path"]
    facts = card_of(source)
    facts["tasks"][1]["classes"] = facts["tasks"][1]["classes"][:1]
    model = edge.load(with_card(source, tmp_path / "a.onnx", json.dumps(facts)))
    with pytest.raises(RivalsError, match="names a task or a class that its card does not have"):
        model.answers(lessons(2, tasks=2)[1].test.images.numpy())


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, taken out or put in, under a checksum that fits again."""
    for _ in range(rng.choice([1, 1, 3])):
        place, length = rng.randrange(len(data)), rng.randrange(20)
        middle = rng.choice([b"", rng.randbytes(1), rng.randbytes(length)])
        data = data[:place] + middle + data[place + rng.choice([0, 1, length]) :]
    try:
        return with_checksum(data)
    except RivalsError:
        return data


@pytest.mark.parametrize("name", ["ticket.onnx", "ticket.ort", "all.onnx", "int8.onnx"])
def test_a_changed_file_answers_or_is_refused_in_a_sentence(
    name: str, exported: Exports, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, rng, refusals = Path(exported[name]["path"]).read_bytes(), random.Random(name), []
    for _ in range(100):
        (tmp_path / name).write_bytes(mutated(whole, rng))
        try:
            answers = edge.load(tmp_path / name).answers(digits(2)[0])
            assert all(np.isfinite(answer.confidence) for answer in answers)
        except RivalsError as error:
            refusals.append(str(error))
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert len(refusals) > 30
    assert not any("\n" in sentence for sentence in refusals)


def test_links_pipes_and_devices(exported: Exports, tmp_path: Path) -> None:
    link = tmp_path / "a.onnx"
    link.symlink_to(exported["ticket.onnx"]["path"])  # named by the user
    edge.load(link)
    for target, sentence in [
        ("/dev/zero", "not a regular file"),
        ("/dev/full", "not a regular file"),
        (link, "cannot be read"),
        (tmp_path / "nowhere", "There is no artefact"),
    ]:
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(RivalsError, match=sentence):
            edge.load(link)
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(RivalsError, match="not a regular file"):
        edge.load(link)


def test_control_codes_in_names_do_not_reach_the_terminal(
    exported: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = exported["ticket.onnx"]["path"]
    names = [f"\x1b[31m{digit}\n" for digit in range(5)]
    facts = {**card_of(source), "classes": names, "task": "t\x07"}
    path = with_card(source, tmp_path / "a.onnx", json.dumps(facts))
    picture = draw(digits()[0][0], tmp_path / "digit.png")
    for words in (["predict", "--model", str(path), str(picture)], [str(path), str(picture)]):
        run = main if words[0] == "predict" else command.main
        for more in ([], ["--csv"]) if run is main else ([],):
            with contextlib.suppress(SystemExit):
                run([*words, *more])
            printed = capsys.readouterr().out
            assert "\N{REPLACEMENT CHARACTER}[31m" in printed
            assert not {"\x1b", "\x07"} & set(printed)
            assert len(printed.splitlines()) == 1 + len(more)
    with pytest.raises(SystemExit):
        main(["predict", "--model", str(path), str(picture), "--task", "x"])
    assert "\x07" not in capsys.readouterr().err


def test_the_limit_on_memory_ends_with_the_block() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited_memory(2**26), pytest.raises(MemoryError):
        bytearray(2**28)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    inside, done = threading.Barrier(2), threading.Barrier(2)

    def other() -> None:
        with limited_memory(2**30):
            inside.wait(10)
            done.wait(10)

    thread = threading.Thread(target=other)
    with limited_memory(2**30):
        thread.start()
        inside.wait(10)
    assert resource.getrlimit(resource.RLIMIT_DATA) != before, "the other is still inside"
    done.wait(10)
    thread.join(10)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_without_its_runtime_one_sentence(exported: Exports, tmp_path: Path) -> None:
    """A Python that has numpy and pillow and nothing else, as on a device."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for package in (np, Image):
        home = Path(str(package.__file__)).parent
        for path in (home, *home.parent.glob(f"{home.name}.libs")):
            (bare / path.name).symlink_to(path)
    for path in Path(str(Image.__file__)).parent.parent.glob("pillow.libs"):
        (bare / path.name).symlink_to(path)
    (bare / "rivals").symlink_to(Path(str(edge.__file__)).parent.parent)
    done = subprocess.run(
        [sys.executable, "-S", "-m", "rivals.edge", exported["ticket.onnx"]["path"], "x.png"],
        capture_output=True, text=True, env={"PYTHONPATH": str(bare)}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs onnxruntime, which is not installed; use pip install onnxruntime" in done.stderr
    assert done.stderr.count("\n") == 1
    shutil.rmtree(bare)
