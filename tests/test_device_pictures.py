"""Folders of pictures: any kind of picture is read, bad ones are told, bad folders are refused."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import rivals
from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.model.folder import ModelFolder
from rivals.seeds import Seed
from rivals.streams import picture_source as pictures
from teaching import WORDS, folder, teach

SHAPE = (3, 8, 8)
Refused = Callable[..., str]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return folder(tmp_path / "pictures", (0, 1), 4)


def red(mode: str, size: tuple[int, int] = (12, 10)) -> Image.Image:
    """A picture of one colour, the same in every mode that has it."""
    colours = {
        "RGB": (200, 0, 0), "RGBA": (200, 0, 0, 255), "L": 60, "LA": (60, 255), "1": 1,
        "CMYK": (55, 255, 255, 0), "YCbCr": (60, 94, 228), "I;16": 60 * 257, "I": 60 * 257,
        "P": 0,
    }  # fmt: skip
    picture = Image.new(mode, size, colours[mode])
    if mode == "P":
        picture.putpalette([200, 0, 0] * 256)
    return picture


@pytest.mark.parametrize(
    ("mode", "ending", "wanted"),
    [
        ("RGB", "png", (200, 0, 0)), ("RGBA", "png", (200, 0, 0)), ("RGBA", "webp", (200, 0, 0)),
        ("L", "png", (60, 60, 60)), ("LA", "png", (60, 60, 60)), ("1", "png", (255, 255, 255)),
        ("P", "gif", (200, 0, 0)), ("P", "png", (200, 0, 0)), ("I;16", "png", (60, 60, 60)),
        ("I;16", "tiff", (60, 60, 60)), ("CMYK", "tiff", (200, 0, 0)), ("RGB", "bmp", (200, 0, 0)),
        ("RGB", "ppm", (200, 0, 0)), ("RGB", "jpg", (200, 0, 0)), ("CMYK", "jpg", (200, 0, 0)),
        ("RGB", "tga", (200, 0, 0)), ("RGB", "ico", (200, 0, 0)),
    ],
)  # fmt: skip
def test_modes_and_formats(
    tmp_path: Path, mode: str, ending: str, wanted: tuple[int, int, int]
) -> None:
    path = tmp_path / f"red.{ending}"
    picture = red(mode, (16, 16))
    picture.save(path, **({"lossless": True} if ending == "webp" else {}))
    found = to_pixels(path, SHAPE)
    assert found.shape == SHAPE
    for channel, value in zip(found, wanted, strict=True):
        assert np.abs(channel.astype(int) - value).max() <= 3


def test_a_picture_that_lies_on_its_side_is_turned(tmp_path: Path) -> None:
    upright = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4)
    upright.save(tmp_path / "upright.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    one, other = (to_pixels(tmp_path / f"{name}.png", SHAPE) for name in ("upright", "turned"))
    assert np.array_equal(one, other)


def test_of_an_animated_picture_the_first_frame_counts(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (9, 9), colour) for colour in ((200, 0, 0), (0, 0, 200))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert to_pixels(tmp_path / "a.gif", SHAPE)[0].min() > 190


def test_what_shines_through_is_white(tmp_path: Path) -> None:
    Image.new("RGBA", (9, 9), (0, 0, 0, 0)).save(tmp_path / "a.png")
    assert to_pixels(tmp_path / "a.png", SHAPE).min() == 255


def test_a_file_and_an_open_picture_are_read_alike(place: Path) -> None:
    path = next((place / "digit 0").iterdir())
    with Image.open(path) as picture:
        assert np.array_equal(to_pixels(picture, SHAPE), to_pixels(path, SHAPE))
    found = pictures.read(pictures.find(place), SHAPE)
    first = sorted((place / "digit 0").iterdir())[0]
    assert np.array_equal(found.images[0], to_pixels(first, SHAPE))


def photo(size: tuple[int, int] = (300, 200)) -> Image.Image:
    """A picture with a gradient in each channel."""
    across, down = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    return Image.fromarray(np.dstack([across, down, across / 2]).astype(np.uint8))


def test_whatever_holds_a_picture_gives_the_same_pixels(tmp_path: Path) -> None:
    picture, path = photo(), tmp_path / "a.png"
    picture.save(path)
    array = np.asarray(picture)  # (200, 300, 3)
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    wanted = to_pixels(path, SHAPE)
    assert len(np.unique(wanted)) > 10
    for each in (
        str(path), path.read_bytes(), picture, array, np.moveaxis(array, -1, 0), tensor,
        array / 255, (array / 255).astype(np.float32), tensor / 255, tensor.half() / 255,
        np.dstack([array, np.full((200, 300), 255, np.uint8)]), np.asfortranarray(array),
        array.astype(np.int64),
    ):  # fmt: skip
        found = to_pixels(each, SHAPE)
        assert found.dtype == np.uint8
        assert np.array_equal(found, wanted), type(each)
    grey = to_pixels(picture.convert("L"), (1, 8, 8))
    flat = np.asarray(picture.convert("L"))
    for each in (flat, flat[..., None], flat[None], torch.from_numpy(flat.copy()) / 255):
        assert np.array_equal(to_pixels(each, (1, 8, 8)), grey)
    assert np.array_equal(to_pixels(flat, SHAPE), np.repeat(grey, 3, 0))
    assert (to_pixels(np.ones((4, 4)), (1, 8, 8), scale=16) == 16).all()


def test_which_side_the_channels_are_on() -> None:
    """Where an array can be read in two ways, the wanted shape and the kind decide."""
    array = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    assert np.array_equal(to_pixels(array, (3, 3, 3)), array)
    last = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    assert np.array_equal(to_pixels(last, (3, 3, 4)), np.moveaxis(last, -1, 0))
    assert np.array_equal(to_pixels(torch.from_numpy(last), (3, 4, 3)), last)


def test_a_picture_that_was_opened_elsewhere_is_not_changed(tmp_path: Path) -> None:
    photo((1200, 900)).save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as picture:
        to_pixels(picture, SHAPE)
        assert picture.size == (1200, 900)


@pytest.mark.parametrize(
    ("picture", "sentence"),
    [
        (np.full((4, 4), 256, np.int64), r"an array of int64 \(4, 4\), but uint8 from 0 to 255 or"),
        (np.full((4, 4), 200.0), "with values from 200 to 200, but floats must lie between 0 and"),
        (np.full((4, 4), np.nan), "with values from nan to nan"),
        (np.full((4, 4), -0.5), "with values from -0.5"),
        (np.zeros((5, 5, 2), np.uint8), r"\(5, 5, 2\), but \(height, width\), .* 1, 3 or 4"),
        (np.zeros((1, 3, 4, 4), np.uint8), r"\(1, 3, 4, 4\), but .*; give a list of pictures"),
        (np.zeros((0, 4), np.uint8), r"\(0, 4\), but \(height, width\)"),
        (np.zeros(4, np.uint8), r"\(4,\), but \(height, width\), .*; change its shape"),
        (torch.zeros(4, 4, dtype=torch.bool), "an array of bool"),
        (np.zeros((10_000, 10_000), np.uint8), "more than 80 million pixels"),
        (Image.new("F", (4, 4)), "is not a picture that can be read"),
        (b"no picture", "is not a picture that can be read"),
        (17, "is of type int, but a path, bytes, a PIL image, an array or a tensor"),
    ],
)  # fmt: skip
def test_what_is_no_picture_is_named(picture: Any, sentence: str) -> None:
    with pytest.raises(RivalsError, match=sentence) as found:
        to_pixels(picture, SHAPE)
    assert str(found.value).startswith("The picture ")
    assert "\n" not in str(found.value)
    with pytest.raises(RivalsError, match="upload 3 "):
        to_pixels(picture, SHAPE, name="upload 3")


def test_pillow_opens_pictures_in_one_place_only() -> None:
    source = Path(rivals.__file__).parent
    opening = [path for path in source.rglob("*.py") if "Image.open(" in path.read_text()]
    assert opening == [source / "io" / "pictures.py"]


def bomb(path: Path) -> None:
    """A tiny file that says it has 60,000 × 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + body)


def spoil(place: Path) -> set[str]:
    """Put what is no picture into a class; gives the names."""
    own = place / "digit 0"
    good = sorted(own.iterdir())[0].read_bytes()
    (own / "cut.png").write_bytes(good[: len(good) // 2])
    (own / "text.png").write_text("not a picture")
    (own / "empty.jpg").write_bytes(b"")
    (own / "program.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n")
    bomb(own / "bomb.png")
    Image.new("F", (9, 9)).save(own / "fractions.tiff")
    (own / "inside").mkdir()
    os.mkfifo(own / "pipe.png")
    (own / "nowhere.png").symlink_to("gone.png")
    outside = place.parent / "outside.png"
    outside.write_bytes(good)
    (own / "outside.png").symlink_to(outside)
    (place / "loose.png").write_bytes(good)
    (place / ".hidden").mkdir()
    (own / ".DS_Store").write_bytes(b"?")
    (own / "Thumbs.db").write_bytes(b"?")
    return {
        "cut.png", "text.png", "empty.jpg", "program.eps", "bomb.png", "fractions.tiff", "inside",
        "pipe.png", "nowhere.png", "outside.png", "loose.png",
    }  # fmt: skip


def test_what_cannot_be_learned_from_is_listed(place: Path, tmp_path: Path) -> None:
    bad = spoil(place)
    learned = teach(place, tmp_path / "model")
    assert {Path(each.path).name for each in learned.left_out} == bad
    assert all(each.why for each in learned.left_out)
    assert learned.facts.images + learned.facts.held == 8


def test_strict_refuses_it(place: Path, tmp_path: Path, refused: Refused) -> None:
    spoil(place)
    said = refused("learn", place, "--model", tmp_path / "model", "--strict", *WORDS)
    assert "11 of the files" in said
    assert not (tmp_path / "model").exists()


def test_one_picture_in_two_classes_counts_in_neither(place: Path, tmp_path: Path) -> None:
    one = sorted((place / "digit 0").iterdir())[0]
    shutil.copy(one, place / "digit 1" / "wrong.bmp")  # a name says nothing
    shutil.copy(one, place / "digit 0" / "copy.png")
    learned = teach(place, tmp_path / "model")
    assert {Path(each.path).name for each in learned.left_out} == {one.name, "wrong.bmp"}
    assert learned.facts.images + learned.facts.held == 7
    assert learned.repeated == 1


def test_names_in_any_script(tmp_path: Path, accepted: Callable[..., str]) -> None:
    names = ["قطعه‌ها", "部品", "Zahnräder", "деталь", "चक्का", "🔩", "a b'c\"d[red]"]
    place = folder(tmp_path / "p", (0,), 4)
    for number, name in enumerate(names):
        folder(tmp_path / str(number), (number + 1,), 4)
        shutil.move(tmp_path / str(number) / f"digit {number + 1}", place / name)
    shutil.rmtree(place / "digit 0")
    learned = teach(place, tmp_path / "model", name="零件 ..")
    assert sorted(learned.facts.classes) == sorted(names)
    picture = next((place / "部品").iterdir())
    said = accepted("predict", picture, "--model", tmp_path / "model", "--json")
    assert "零件" in said.encode().decode("unicode-escape")
    assert "[red]" in accepted("info", tmp_path / "model")


def no_classes(place: Path) -> None:
    shutil.rmtree(place / "digit 0")
    shutil.rmtree(place / "digit 1")


def one_class(place: Path) -> None:
    shutil.rmtree(place / "digit 0")


def one_picture(place: Path) -> None:
    for path in sorted((place / "digit 0").iterdir())[1:]:
        path.unlink()


def a_folder_of_tasks(place: Path) -> None:
    tasks = place.parent / "tasks"
    place.rename(tasks)
    place.mkdir()
    tasks.rename(place / "task")
    shutil.copytree(place / "task", place / "other")


def loose_pictures(place: Path) -> None:
    shutil.copy(next((place / "digit 0").iterdir()), place / "loose.png")
    no_classes(place)


def only_damage(place: Path) -> None:
    for path in (place / "digit 0").iterdir():
        path.write_text("no picture")


def both_classes(place: Path) -> None:
    shutil.rmtree(place / "digit 1")
    shutil.copytree(place / "digit 0", place / "digit 1")


def a_hidden_command(place: Path) -> None:
    (place / "digit 0").rename(place / "\x1b[2Jdigit")


def bytes_that_are_no_text(place: Path) -> None:
    os.rename(bytes(place / "digit 0"), bytes(place) + b"/\xff\xfe")


def a_long_name(place: Path) -> None:
    (place / "digit 0").rename(place / ("x" * 120))


@pytest.mark.parametrize(
    ("spoiled", "sentence"),
    [
        (no_classes, "holds no classes, but a task needs at least two"),
        (one_class, "holds one class, 'digit 1', but a task needs at least two"),
        (one_picture, "has 1 picture, but each needs at least 2"),
        (a_folder_of_tasks, "holds the folder 'digit 0' and no pictures, but a class is"),
        (loose_pictures, "no classes and 1 picture that lies directly in it, but a task needs"),
        (only_damage, "is not a picture that can be read), but"),
        (both_classes, "png: the same picture is in another class, too), but each"),
        (a_hidden_command, "characters that cannot be shown"),
        (bytes_that_are_no_text, "characters that cannot be shown"),
        (a_long_name, "a name of 120 letters"),
    ],
)
def test_bad_folders_get_one_sentence(
    place: Path, tmp_path: Path, refused: Refused, tree: Callable[[Path], dict[str, str]],
    spoiled: Callable[[Path], None], sentence: str,
) -> None:  # fmt: skip
    model = tmp_path / "model"
    teach(folder(tmp_path / "good", (2, 3), 4), model)
    before = tree(model)
    spoiled(place)
    assert sentence in refused("learn", place, "--model", model, *WORDS)
    assert tree(model) == before
    assert sentence in refused("learn", place, "--model", tmp_path / "new", *WORDS)
    assert not (tmp_path / "new").exists()


def test_folders_that_are_not_there(place: Path, tmp_path: Path, refused: Refused) -> None:
    assert "There is no folder" in refused("learn", "nowhere", "--model", tmp_path / "m")
    file = next((place / "digit 0").iterdir())
    assert "is a file" in refused("learn", file, "--model", tmp_path / "m")
    assert "inside the folder of pictures" in refused("learn", place, "--model", place / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="takes a process with other rights")
def test_what_may_not_be_read(place: Path) -> None:
    (place / "digit 0" / "secret.png").write_bytes(b"?")
    (place / "digit 0" / "secret.png").chmod(0)
    for path in (place, *place.parents):
        if path.stat().st_uid == os.getuid():
            path.chmod(path.stat().st_mode | 0o055)
    found = as_nobody(lambda: pictures.read(pictures.find(place), SHAPE).left_out[0].why)
    assert "cannot be read (Permission denied)" in found
    (place / "digit 1").chmod(0)
    try:
        assert "cannot be read (Permission denied)" in as_nobody(lambda: pictures.find(place))
    finally:
        (place / "digit 1").chmod(0o755)


def as_nobody(act: Callable[[], object]) -> str:
    """What an act gives, or the sentence it fails with, without the rights of root."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            said = str(act())
        except RivalsError as error:
            said = str(error)
        except BaseException as error:
            said = repr(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_some_of_very_many() -> None:
    classes = {name: [f"{name}/{n}" for n in range(count)] for name, count in
               (("a", 100_000), ("b", 30), ("c", 5_000))}  # fmt: skip
    few = pictures.sample(pictures.PictureSource(Path(), classes), 2_000, Seed(0))
    sizes = {name: len(files) for name, files in few.classes.items()}
    assert sizes["b"] == 30
    assert sizes["a"] == sizes["c"] == 985
    again = pictures.sample(pictures.PictureSource(Path(), classes), 2_000, Seed(0))
    assert again.classes == few.classes


@pytest.mark.slow
def test_a_hundred_thousand_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "p" / name).mkdir(parents=True)
    for number in range(100_000):
        value = np.array([number >> 16 & 255, number >> 8 & 255, number & 255, number % 2 * 255])
        picture = Image.fromarray(value.astype(np.uint8).reshape(2, 2))
        picture.save(tmp_path / "p" / "ab"[number % 2] / f"{number}.bmp")
    words = ["learn", tmp_path / "p", "--model", tmp_path / "model", *WORDS[:-1], "1"]
    done = subprocess.run(
        [sys.executable, "-m", "rivals.cli.main", *map(str, words), "--ram", "550", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    learned = json.loads(done.stdout.splitlines()[-1])
    assert learned["images"] + learned["held"] == 100_000
    assert learned["peak_memory"] < 550e6
    assert ModelFolder.open(tmp_path / "model").tasks[0].accuracy > 90
