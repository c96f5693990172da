"""`rivals export --to web` in a real Chromium: the answers of Python, also without a network."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import io
import json
import re
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rivals
from page_tabs import PATIENCE
from rivals import edge
from rivals.deploy.browser import npm_runtime, paper
from rivals.errors import RivalsError
from rivals.io.pictures import to_pixels
from rivals.model.checking import check
from served import fill, until

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: rivals[export]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: rivals[export]")

Accepted, Refused = Callable[..., str], Callable[..., str]
MARKUP = "<img src=x onerror=alert(1)>"  # the name of a class
TOLERANCE = 0.01  # of a confidence: a JPEG is made smaller a little differently in browsers


@pytest.fixture(scope="module")
def runtime() -> dict[str, bytes]:
    """onnxruntime-web from the cache, or from npm."""
    try:
        return npm_runtime.find_runtime()
    except RivalsError as error:
        pytest.skip(f"There is no onnxruntime-web here: {error}")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with an ancestor that tells circles from crosses."""
    place = tmp_path_factory.mktemp("taught")
    (fill(place / "shapes") / "circle").rename(place / "shapes" / MARKUP)
    rivals.Model(place / "model").learn(place / "shapes", ancestor="tiny")
    return place / "model"


@pytest.fixture(scope="module")
def site(taught: Path, runtime: dict[str, bytes]) -> Path:
    """One ticket of a model, from Python."""
    out = taught.with_name("site")
    made = rivals.Model(taught).export("shapes", out, to="web")
    assert (made.tasks, made.parity.agreement) == (("shapes",), 1.0)
    return out


@pytest.fixture(scope="module")
def whole(
    trained: Path, runtime: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Both tasks of a run on digits, which are grey, white on black, and have 8 × 8 pixels."""
    from rivals.deploy.exporting import export_from

    out = tmp_path_factory.mktemp("whole") / "site"
    made = export_from(trained, out, "web", all_tasks=True)
    assert made.parity.difference < 1e-5
    return out


class Quiet(http.server.SimpleHTTPRequestHandler):
    """`python -m http.server`, which is all that the page needs."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def host() -> Iterator[Callable[[Path], Any]]:
    """Serve a folder on loopback; `.url` is its address."""
    begun = []

    def start(folder: Path) -> Any:
        handler = functools.partial(Quiet, directory=str(folder))
        server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.url = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        begun.append(server)
        return server

    yield start
    for server in begun:
        server.shutdown()
        server.server_close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; at the end it asked nobody else for anything, and complained of nothing."""
    pages = []

    def open_page(url: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.asked, page.troubles = [], []
        context.on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("console", lambda message: page.troubles.append(message.text))
        page.goto(url)
        page.wait_for_selector("body.ready")
        pages.append((page, url))
        return page

    yield open_page
    for page, url in pages:
        foreign = [each for each in page.asked if not each.startswith((url, f"blob:{url}"))]
        assert (foreign, page.troubles) == ([], [])
        page.context.close()


# Pictures -----------------------------------------------------------------------------------------


def pictures() -> dict[str, bytes]:
    """One of each kind: sizes, transparency, palettes, EXIF, modes, formats."""
    chance = np.random.default_rng(0)

    def scene(width: int, height: int) -> Image.Image:
        y, x = np.mgrid[:height, :width]
        waves = [np.sin(x / 17 + y / 41), np.cos(y / 11), np.sin((x + y) / 7)]
        pixels = 128 + 90 * np.stack(waves, -1) + chance.normal(0, 20, (height, width, 3))
        return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))

    def stored(picture: Image.Image, kind: str, **options: Any) -> bytes:
        out = io.BytesIO()
        picture.save(out, kind, **options)
        return out.getvalue()

    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn
    clear = scene(50, 40).convert("RGBA")
    clear.putalpha(Image.fromarray(chance.integers(0, 256, (40, 50)).astype(np.uint8)))
    return {
        "plain.png": stored(scene(48, 48), "PNG"),
        "wide.png": stored(scene(333, 90), "PNG"),
        "small.bmp": stored(scene(7, 5), "BMP"),
        "large.png": stored(Image.linear_gradient("L").resize((2300, 1900)), "PNG"),
        "grey.png": stored(scene(100, 100).convert("L"), "PNG"),
        "palette.gif": stored(scene(90, 90).quantize(16), "GIF"),
        "clear.png": stored(clear, "PNG"),
        "lossless.webp": stored(scene(90, 60), "WEBP", lossless=True),
        "turned.jpg": stored(scene(64, 90), "JPEG", exif=turned),
        "large.jpg": stored(scene(900, 1200), "JPEG", quality=85),
    }


PIXELS = """async ({ data, shape, scale }) => {
  const { ofFile } = await import("./sources.js");
  const { toPixels } = await import("./pixels.js");
  const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
  return [...toPixels(await ofFile(new Blob([bytes])), shape, scale)];
}"""


def test_files_are_answered_as_by_python_and_without_a_network(
    site: Path, taught: Path, host: Any, opened: Any, tmp_path: Path, accepted: Accepted
) -> None:
    server = host(site)
    page = opened(server.url)
    assert page.locator("#model").text_content() == "shapes"

    # The pixels are Pillow's: bit by bit, or nearly where decoders differ.
    found = pictures()
    for name, data in found.items():
        most = {"clear.png": 1, "large.jpg": 4}.get(name, 0)
        shapes = [((1, 28, 20), 16), ((3, 48, 48), 255)]
        for shape, scale in shapes[: 1 if name == "large.png" else 2]:
            words = {"data": base64.b64encode(data).decode(), "shape": shape, "scale": scale}
            pixels = np.array(page.evaluate(PIXELS, words)).reshape(shape)
            apart = np.abs(pixels - to_pixels(data, shape, scale).astype(int))
            assert apart.max() <= most, (name, shape, apart.max())
            assert apart.mean() < 0.5, (name, shape)

    # And so are the answers: of these pictures and of some between a circle and a cross.
    for number in range(4):
        one, other = (
            Image.open(taught.with_name("shapes") / kind / f"{number}.png")
            for kind in (MARKUP, "cross")
        )
        out = io.BytesIO()
        Image.blend(one, other, 0.3 + 0.1 * number).save(out, "PNG")
        found[f"between{number}.png"] = out.getvalue()
    for name, data in found.items():
        (tmp_path / name).write_bytes(data)
    printed = accepted("predict", tmp_path, "--model", taught, "--task", "shapes", "--json")
    wanted = [json.loads(line) for line in printed.splitlines()]
    (tmp_path / "notes.txt").write_text("no picture")
    files = [Path(each["image"]) for each in wanted]
    page.get_by_label("Pictures", exact=True).set_input_files([*files, tmp_path / "notes.txt"])
    page.get_by_text("is not a picture that this browser can read").wait_for()
    for row, each in zip(page.locator("#answers li").all(), wanted, strict=False):
        assert row.locator(".file").text_content() == Path(each["image"]).name
        assert row.locator("b").text_content() == each["label"], each
        share = float(re.search(r" ([\d.]+) %$", row.text_content())[1]) / 100
        assert share == pytest.approx(each["confidence"], abs=TOLERANCE), each
    assert {each["label"] for each in wanted} == {MARKUP, "cross"}
    assert min(each["confidence"] for each in wanted) < 0.99, "the comparison would be idle"
    assert page.locator("img[src=x]").count() == 0  # the name of a class stays text

    # The server is gone, and so is the network: the page opens and answers.
    page.get_by_text("opens without a network").wait_for()
    server.shutdown()
    server.server_close()
    page.context.set_offline(True)
    page.reload()
    page.wait_for_selector("body.ready")
    page.get_by_label("Pictures", exact=True).set_input_files(files[:1])
    page.wait_for_selector("#answers b")
    assert page.locator("#answers b").text_content() == wanted[0]["label"]
    page.context.set_offline(False)


def test_drawings_and_the_camera_are_answered(whole: Path, host: Any, opened: Any) -> None:
    page = opened(host(whole).url, permissions=["camera"])
    label, summary = page.locator("#label"), page.locator("#summary")

    # A grey model begins with a drawing, on black as its pictures are.
    assert page.locator("#tabs [aria-pressed=true]").text_content() == "Draw"
    assert page.get_by_label("White on black").is_checked()
    box = page.locator("#pad canvas").bounding_box()
    x, y, side = box["x"], box["y"], box["width"]
    page.mouse.move(x + 0.5 * side, y + 0.15 * side)
    page.mouse.down()
    page.mouse.move(x + 0.5 * side, y + 0.85 * side, steps=4)
    page.mouse.up()
    page.locator("#choices li").first.wait_for()
    drawn = page.evaluate("document.querySelector('#pad canvas').toDataURL()")
    answer = edge.load(whole).classify(base64.b64decode(drawn.partition(",")[2]))
    shown = [(each.label, pytest.approx(each.confidence, abs=0.001)) for each in answer.top(3)]

    def rows() -> list[tuple[str, float]]:
        texts = page.locator("#choices span").all_text_contents()
        return [(a, float(b[:-2]) / 100) for a, b in zip(texts[::2], texts[1::2], strict=False)]

    until(lambda: rows() == shown)  # the answer to the last stroke
    assert label.text_content() == answer.label
    assert re.fullmatch(
        rf"Confidence .+ % · task {answer.task} · [\d.]+ ms", summary.text_content()
    )
    page.get_by_role("button", name="Clear").click()
    assert label.text_content() == "–"

    # The camera, a fake one: it goes on answering until it is held.
    page.get_by_role("button", name="Camera").click()
    page.locator("#choices li").first.wait_for()
    first = summary.text_content()
    page.wait_for_function("(first) => document.querySelector('#summary').textContent !== first",
                           arg=first)  # fmt: skip
    assert page.get_by_role("button", name="Other camera").is_hidden()  # there is one
    page.get_by_role("button", name="Hold").click()
    page.wait_for_timeout(500)
    held = summary.text_content()
    page.wait_for_timeout(500)
    assert summary.text_content() == held
    page.get_by_role("button", name="Pictures").click()
    assert page.evaluate("document.querySelector('video').srcObject") is None  # its light is off
    page.context.clear_permissions()
    page.context.grant_permissions([])
    page.get_by_role("button", name="Camera").click()
    page.get_by_text("The camera was not allowed").wait_for()

    # What it knows, on every screen, in every light, by keyboard.
    page.get_by_text("What it knows").click()
    assert "5-6-7-8-9" in page.locator("#known").text_content()
    for width in (1280, 768, 360, 320):
        page.set_viewport_size({"width": width, "height": 800})
        for view in ("Draw", "Pictures", "Camera"):
            page.get_by_role("button", name=view).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, view)
            assert page.evaluate(OVERRUN) == [], (width, view)
            assert page.evaluate(NAMELESS) == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.get_by_role("button", name="Draw").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")  # the next tab
    page.get_by_text("Drop or paste pictures").wait_for()


NAMELESS = """() => [...document.querySelectorAll("button, input, canvas, a, summary")]
  .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.[0]?.textContent))
  .map((node) => node.outerHTML)"""
OVERRUN = """() => [...document.querySelectorAll("button")]
  .filter((node) => node.scrollWidth > node.clientWidth).map((node) => node.textContent)"""


def test_what_cannot_open_says_why(site: Path, host: Any, browser: Any, tmp_path: Path) -> None:
    """As a file; with a model that was cut off; with a file that was not copied."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{site.as_uri()}/index.html")
    page.get_by_text("python -m http.server").wait_for()
    for name, sentence in (
        ("model.onnx", "model.onnx was altered or is not complete"),
        ("camera.js", "could not be loaded; copy the whole folder"),
    ):
        copy = tmp_path / name
        shutil.copytree(site, copy)
        (copy / name).unlink() if name.endswith(".js") else (copy / name).write_bytes(b"cut off")
        page.goto(host(copy).url)
        page.get_by_text(sentence).wait_for()
    page.close()


# The folder ---------------------------------------------------------------------------------------


def test_the_folder_is_an_export_like_others(
    site: Path, taught: Path, tmp_path: Path, accepted: Accepted, refused: Refused
) -> None:
    assert check(site).whole
    picture = taught.with_name("shapes") / "cross" / "0.png"
    assert edge.load(site).classify(picture).label == "cross"  # nothing native, so no flag
    line = json.loads(accepted("predict", picture, "--model", site, "--json"))
    assert (line["label"], line["task"]) == ("cross", "shapes")
    for name in sorted(path.name for path in site.iterdir()):
        copy = tmp_path / name
        copy.mkdir()
        for path in site.iterdir():  # links would be refused
            (copy / path.name).hardlink_to(path)
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 2] ^= 1
        (copy / name).unlink()
        (copy / name).write_bytes(data)
        report = check(copy)
        assert not report.whole, name
    (copy / name).unlink()
    (copy / name).symlink_to(site / name)
    assert "it is a link" in refused("predict", picture, "--model", copy)
    card = json.loads((copy / "card.json").read_text())
    for files in ({}, {"../model.onnx": "0" * 64}, dict.fromkeys(map(str, range(40)), ""), None):
        (copy / "card.json").unlink()
        (copy / "card.json").write_text(json.dumps({**card, "files": files}))
        assert "does not list its files" in refused("predict", picture, "--model", copy)


def test_an_old_page_is_replaced_and_nothing_else(
    taught: Path, tmp_path: Path, refused: Refused
) -> None:
    other = tmp_path / "photos"
    other.mkdir()
    (other / "mine.jpg").write_bytes(b"mine")
    words = ["export", "--model", taught, "--to", "web"]
    assert "is no artefact of rivals, so it is not replaced" in refused(*words, other)
    assert [path.name for path in other.iterdir()] == ["mine.jpg"]
    out = tmp_path / "page"
    assert "leave out --float-input" in refused(*words, out, "--float-input")
    words[-1] = "onnx"
    told = refused(*words, tmp_path / "t.onnx", "--runtime", other)
    assert "--runtime is for --to web" in told


def test_what_is_drawn_on() -> None:
    import torch

    dark = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    dark[:, :, 2:6, 2:6] = 16
    assert [paper(dark, 16), paper(16 - dark, 16), paper(None, 16)] == ["black", "white", "white"]


# The runtime --------------------------------------------------------------------------------------


@pytest.fixture
def archive(runtime: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `npm pack` would make, with the two files that are needed; and a cache of its own."""
    path = tmp_path / "pack" / f"onnxruntime-web-{npm_runtime.VERSION}.tgz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, each in npm_runtime.FILES.items():
            entry = tarfile.TarInfo(f"package/{each.source}")
            entry.size = len(runtime[name])
            tar.addfile(entry, io.BytesIO(runtime[name]))
    digest = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    monkeypatch.setattr(npm_runtime, "INTEGRITY", f"sha512-{digest}")
    monkeypatch.setenv("RIVALS_CACHE", str(tmp_path / "cache"))
    return path


def npm(place: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, the only one that is found."""
    place.mkdir(exist_ok=True)
    (place / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (place / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(place))


def test_where_the_runtime_comes_from(
    archive: Path, runtime: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert npm_runtime.find_runtime(archive) == runtime
    folder = tmp_path / "onnxruntime-web"
    for name, each in npm_runtime.FILES.items():
        (folder / each.source).parent.mkdir(parents=True, exist_ok=True)
        (folder / each.source).write_bytes(runtime[name])
    assert npm_runtime.find_runtime(folder) == runtime
    assert not (tmp_path / "cache").exists()

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RivalsError, match="there is no npm here to fetch it; install npm, or run"):
        npm_runtime.find_runtime()
    npm(tmp_path / "bin", "echo 'npm error code ENOTFOUND' >&2; exit 1", monkeypatch)
    with pytest.raises(RivalsError, match=r"could not fetch onnxruntime-web@1.+ENOTFOUND"):
        npm_runtime.find_runtime()
    copy = f'[ "$1 $2" = "pack onnxruntime-web@{npm_runtime.VERSION}" ] && /bin/cp {archive} .'
    npm(tmp_path / "bin", copy, monkeypatch)
    assert npm_runtime.find_runtime() == runtime
    (tmp_path / "bin" / "npm").unlink()
    assert npm_runtime.find_runtime() == runtime  # from the cache
    (kept,) = (tmp_path / "cache").rglob("ort.wasm")
    kept.write_bytes(b"half")
    with pytest.raises(RivalsError, match="there is no npm here"):
        npm_runtime.find_runtime()


def test_a_runtime_that_is_another_one(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-1])
    for given, sentence in (
        (archive, "is not onnxruntime-web .*: its checksum differs"),
        (tmp_path / "nowhere.tgz", "cannot be read .*No such file"),
        (tmp_path, "does not hold onnxruntime-web"),
    ):
        with pytest.raises(RivalsError, match=sentence):
            npm_runtime.find_runtime(given)
