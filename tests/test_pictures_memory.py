"""The memory that pictures take: the peak of real processes, with files made to take much."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from rivals.errors import RivalsError
from rivals.io.pictures import LARGE, MAX_FILE, MAX_MEMORY, to_pixels
from teaching import WORDS, folder

SLACK = 10_000_000  # bytes that Python itself may take meanwhile
READ = """
import io, sys
from PIL import Image
from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.io.process_memory import peak_memory
small = io.BytesIO()
Image.effect_noise((64, 64), 9).save(small, "PNG")
to_pixels(small.getvalue(), (3, 64, 64))
before = peak_memory()
try:
    to_pixels(sys.argv[1], (3, 64, 64))
    message = ""
except RivalsError as error:
    message = str(error)
print(peak_memory() - before)
print(message)
"""


def chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def png(width: int, height: int, colour: int, bytes_per_pixel: int, depth: int = 8) -> bytes:
    """A complete PNG of one colour; a few hundred kilobytes, whatever it says."""
    packed, row = zlib.compressobj(1), bytes(1 + width * bytes_per_pixel)
    rows = max(1, 2**20 // len(row))
    parts = [packed.compress(row * min(rows, height - top)) for top in range(0, height, rows)]
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = b"".join(parts) + packed.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def saved(kind: str, size: tuple[int, int], mode: str = "RGB", **options: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, 120 if mode == "L" else None).save(out, kind, **options)
    return out.getvalue()


def in_an_icon(data: bytes) -> bytes:
    """An ICO file whose list says 16 × 16."""
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(data), 22)
    return struct.pack("<HHH", 0, 1, 1) + entry + data


def in_one_tile(side: int) -> bytes:
    """A TIFF of 64 × 64 pixels in a tile of `side` × `side`."""
    data = zlib.compress(bytes(side * side), 1)
    tags = [(256, 64), (257, 64), (258, 8), (259, 8), (262, 1), (277, 1), (322, side), (323, side),
            (324, 8), (325, len(data))]  # fmt: skip
    listed = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    start = 8 + len(data)
    return (
        struct.pack("<2sHI", b"II", 42, start) + data + struct.pack("<H", len(tags)) + listed
        + bytes(4)
    )  # fmt: skip


def in_several_scans(side: int) -> bytes:
    """A JPEG that is not progressive but has a scan for each layer; the first one only."""
    data = saved("JPEG", (side, side), subsampling=0)
    start = data.index(b"\xff\xda\x00\x0c\x03")
    return data[:start] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + data[start + 14 :]


READABLE: dict[str, Callable[[], bytes]] = {
    "png": lambda: png(7200, 7200, 2, 3),  # 52 million pixels
    "png-rgba": lambda: png(7200, 7200, 6, 4),
    "png-palette": lambda: png(7200, 7200, 0, 1),
    "png-16-bits": lambda: png(7200, 7200, 0, 2, 16),
    "png-just-not-large": lambda: png(2000, LARGE // 2000, 4, 2),
    "png-long": lambda: png(30_000, 1_700, 6, 4),
    "jpeg-of-a-phone": lambda: saved("JPEG", (8192, 6144)),
    "jpeg-progressive": lambda: saved("JPEG", (8192, 6144), progressive=True),
    "gif": lambda: saved("GIF", (7000, 7000), "L"),
    "tiff-one-strip": lambda: saved(
        "TIFF", (4900, 4900), "RGBA", compression="tiff_adobe_deflate", tiffinfo={278: 4900}
    ),
}
TOO_MUCH: dict[str, Callable[[], bytes]] = {
    "png-1-wide": lambda: png(1, 49_000_000, 0, 1),
    "png-many-pixels": lambda: png(8000, 8000, 0, 1),
    "jpeg-progressive": lambda: saved("JPEG", (8192, 6144), progressive=True, subsampling=0),
    "jpeg-several-scans": lambda: in_several_scans(6200),
    "icon": lambda: in_an_icon(png(8000, 8000, 6, 4)),
    "tiff-tile": lambda: in_one_tile(16_000),
}
if features.check("webp"):
    READABLE["webp"] = lambda: saved("WEBP", (4032, 3024), quality=10, method=0)  # a phone's
    TOO_MUCH["webp"] = lambda: saved("WEBP", (5000, 4000), quality=10, method=0)


def peak(path: Path) -> tuple[int, str]:
    """How much a process grew when it read a picture, and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True
    )
    growth, message = done.stdout.split("\n", 1)
    return int(growth), message.strip()


@pytest.mark.parametrize("name", READABLE)
def test_no_picture_takes_more_than_the_limit(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(READABLE[name]())
    growth, message = peak(tmp_path / name)
    assert message == ""
    assert growth < MAX_MEMORY + SLACK


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_would_take_more_is_not_decoded(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(TOO_MUCH[name]())
    assert (tmp_path / name).stat().st_size < 5_000_000
    growth, message = peak(tmp_path / name)
    assert message.endswith(".")
    assert growth < SLACK


def test_a_huge_file_is_not_opened(tmp_path: Path) -> None:
    with (tmp_path / "huge.webp").open("wb") as file:
        file.write(b"RIFF\xff\xff\xff\xffWEBPVP8 ")
        file.truncate(MAX_FILE + 1)
    growth, message = peak(tmp_path / "huge.webp")
    assert "has 100 MB, but the file of a picture may have at most 100 MB" in message
    assert growth < SLACK


def test_a_large_picture_is_reduced_as_a_whole_one_would_be(tmp_path: Path) -> None:
    """In bands, of whatever mode, lying or standing: nearly the same pixels as in one piece."""
    across, down = np.meshgrid(np.linspace(0, 255, 2900), np.linspace(0, 255, 2003))
    photo = Image.fromarray(np.dstack([across, down, (across + down) / 2]).astype(np.uint8))
    wanted = np.asarray(photo.resize((48, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = photo.transpose(Image.Transpose.ROTATE_90)
    for name, picture, options in (
        ("a.png", photo, {}), ("b.png", photo.convert("RGBA"), {}), ("c.bmp", photo, {}),
        ("d.png", turned, {"exif": exif}), ("e.tiff", photo, {}),
    ):  # fmt: skip
        picture.save(tmp_path / name, **options)
        found = to_pixels(tmp_path / name, (3, 32, 48))
        assert np.abs(found.astype(int) - wanted).max() <= 2, name
    clear = photo.convert("RGBA")
    clear.putalpha(0)
    assert (to_pixels(clear, (3, 32, 48)) == 255).all()


def test_learning_keeps_its_budget_with_large_pictures(tmp_path: Path) -> None:
    """A picture that does not fit into what is left of --ram is left out, and said to be."""
    place = folder(tmp_path / "pictures", (0, 1), 4)
    (place / "digit 0" / "heavy.png").write_bytes(png(7200, 7200, 2, 3))
    words = ["learn", place, "--model", tmp_path / "model", *WORDS, "--ram", "430", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "rivals.cli.main", *map(str, words)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    learned = json.loads(done.stdout.splitlines()[-1])
    assert [Path(each["path"]).name for each in learned["left_out"]] == ["heavy.png"]
    assert "MB of memory, but" in learned["left_out"][0]["why"]
    assert learned["peak_memory"] < 430e6


def test_a_name_cannot_command_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J\nrivals: all is well.png"
    path.write_bytes(b"no picture")
    with pytest.raises(RivalsError) as refused:
        to_pixels(path, (3, 8, 8))
    assert "\x1b" not in str(refused.value)
    assert "\n" not in str(refused.value)
