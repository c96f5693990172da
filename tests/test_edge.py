"""Artefacts run without torch, in little memory; pictures of all kinds; what cannot be run."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import room
from rivals import edge
from rivals.edge import __main__ as command
from rivals.edge.card import read_card
from rivals.errors import RivalsError
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
        "import sys; from rivals.edge.__main__ import main\n"
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
    assert capsys.readouterr().err == f"rivals.edge: There is no picture {tmp_path}/nothing.png.\n"


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
    for name, content in {"cut.onnx": data[:-100], "text.onnx": b"hello", "empty.ort": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            RivalsError, match=rf"{name} is not an artefact that onnxruntime .* can run"
        ):
            edge.load(tmp_path / name)
    with pytest.raises(RivalsError, match=r"There is no artefact nowhere\.onnx; make one with"):
        edge.load("nowhere.onnx")
    (tmp_path / "ticket.bin").write_bytes(data)
    with pytest.raises(
        RivalsError, match=r"expected a file that ends in \.onnx, \.ort, \.tflite, \.pte"
    ):
        edge.load(tmp_path / "ticket.bin")


def with_card(source: str, out: Path, text: str | None) -> Path:
    """The same graph with another card."""
    import onnx

    model = onnx.load(source)
    del model.metadata_props[:]
    if text is not None:
        entry = model.metadata_props.add()
        entry.key, entry.value = "rivals", text
    onnx.save(model, out)
    return out


def test_a_card_of_another_version_or_none(exported: Exports, tmp_path: Path) -> None:
    source = exported["ticket.onnx"]["path"]
    newer = json.dumps({"rivals": 2, "labels": []})
    for text, sentence in {
        None: "has no card of rivals",
        newer: "has version 2, and this version of rivals reads 1",
        "{": "is damaged; export it again",
        "[]": "is damaged; export it again",
        '{"rivals": 1}': "is damaged .KeyError",
    }.items():
        with pytest.raises(RivalsError, match=sentence) as told:
            edge.load(with_card(source, tmp_path / "a.onnx", text))
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "change",
    [{"classes": []}, {"classes": 7}, {"input_shape": [1, 8]}, {"input_shape": [0, 8, 8]},
     {"preprocessing": {}}, {"preprocessing": {"scale": 0, "mean": [], "std": []}},
     {"raw_input": False}],
)  # fmt: skip
def test_a_card_that_makes_no_sense(change: dict[str, Any]) -> None:
    good = {
        "rivals": 1, "task": "t", "classes": ["a", "b"], "input_shape": [1, 8, 8],
        "preprocessing": {"scale": 255.0, "mean": [], "std": []}, "raw_input": True,
    }  # fmt: skip
    assert read_card(json.dumps(good), Path("x")).classes == (("a", "b"),)
    with pytest.raises(RivalsError, match="The card of x is damaged"):
        read_card(json.dumps({**good, **change}), Path("x"))


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
