"""The pictures of the page in docs/images, made anew with Chromium.

    RIVALS_DATA=DIR python benchmarks/screenshots.py --out docs/images

It needs the extras web, export and test, Fashion-MNIST, and a Chromium. A real server learns forty
pictures each of three kinds of clothes and ten drawings each of two shapes, as a person would.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

import rivals
from rivals.streams.data.loading import load

CLOTHES = ("coat", "pullover", "shirt")
PATIENCE = 300_000  # milliseconds


def clothes(place: Path, start: int, count: int) -> Path:
    data = load("fashion-mnist")
    labels, images = np.asarray(data.train.labels), np.asarray(data.train.images)
    for name in CLOTHES:
        (place / name).mkdir(parents=True)
        found = np.flatnonzero(labels == list(data.classes).index(name))[start : start + count]
        for number in found:
            Image.fromarray(255 - images[number, 0]).save(place / name / f"{number}.png")
    return place


def shapes(place: Path) -> Path:
    """Circles and triangles, as the page would store drawings."""
    chance = np.random.default_rng(0)
    for name in ("circle", "triangle"):
        (place / name).mkdir(parents=True)
        for number in range(10):
            paper = Image.new("RGB", (320, 320), "white")
            x, y, size = chance.uniform(130, 190), chance.uniform(130, 190), chance.uniform(70, 110)
            turn = chance.uniform(-0.2, 0.2)
            corners = 3 if name == "triangle" else 30
            angles = [turn - math.pi / 2 + 2 * math.pi * k / corners for k in range(corners + 1)]
            points = [(x + size * math.cos(a), y + size * math.sin(a)) for a in angles]
            ImageDraw.Draw(paper).line(points, fill="#111", width=18, joint="curve")
            paper.resize((64, 64), Image.Resampling.LANCZOS).save(place / name / f"{number}.png")
    return place


@contextmanager
def served(model: Path, *words: str) -> Iterator[str]:
    line = [sys.executable, "-m", "rivals", "serve", "--model", str(model), "--json"]
    server = subprocess.Popen([*line, "--port", "0", *words], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield str(json.loads(server.stdout.readline())["url"])
    finally:
        server.terminate()
        server.wait()


@contextmanager
def opened(browser: Any, url: str, width: int, height: int, scale: int = 1) -> Iterator[Any]:
    context = browser.new_context(
        viewport={"width": width, "height": height}, locale="en-US", device_scale_factor=scale
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("body.ready")
    yield page
    context.close()


def triangle(page: Any, where: str) -> None:
    """Draw one with the mouse."""
    box = page.locator(where).bounding_box()
    middle, reach = box["x"] + box["width"] / 2, 0.3 * box["width"]
    angles = [-math.pi / 2 + 2 * math.pi * k / 3 for k in range(4)]
    for number, angle in enumerate(angles):
        y = box["y"] + 0.55 * box["height"] + reach * math.sin(angle)
        page.mouse.move(middle + reach * math.cos(angle), y, steps=8)
        if number == 0:
            page.mouse.down()
    page.mouse.up()
    page.locator(".choices li, #choices li").first.wait_for()
    page.wait_for_timeout(1000)  # for the answer to the last stroke


def learn(page: Any, folder: Path) -> None:
    """Collect a folder, and train."""
    page.locator("#folder-input").set_input_files(folder)
    page.locator("#start:enabled").wait_for()
    page.locator("#collect-progress").wait_for(state="hidden")
    page.locator("#start").click()


def teach(browser: Any, model: Path, photos: Path, out: Path) -> None:
    with served(model) as url:
        with opened(browser, url, 1040, 900) as page:
            learn(page, photos / "clothes")
            page.get_by_role("heading", name="Learned clothes").wait_for()
            page.locator(".mistakes img").last.wait_for()
            page.mouse.move(0, 0)
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(1000)
            box = page.locator(".step").nth(1).bounding_box()
            clip = {"x": 0, "y": 0, "width": 1040, "height": box["y"] + box["height"] + 20}
            page.screenshot(path=out / "page.png", full_page=True, clip=clip)
            page.get_by_role("button", name="New task").click()
            learn(page, photos / "shapes")
            page.get_by_role("heading", name="Learned shapes").wait_for()
            page.evaluate("location.hash = 'tasks'")
            page.get_by_text("Inside the network").first.click()
            page.screenshot(path=out / "serve-tasks.png", full_page=True)
        with opened(browser, f"{url}#try", 375, 760) as page:
            triangle(page, "#try canvas")
            page.screenshot(path=out / "serve-try.png")
        with opened(browser, f"{url}#try", 900, 700) as page:
            page.get_by_role("button", name="Pictures").click()
            page.get_by_label("Pictures to try").set_input_files(
                sorted((photos / "asked" / "shirt").iterdir())
            )
            page.get_by_role("button", name="What decided for").last.click()
            page.locator("#explain-dialog img").wait_for()
            page.wait_for_timeout(500)
            page.locator("#explain-dialog").screenshot(path=out / "serve-explain.png")


def competition(browser: Any, model: Path, photos: Path, out: Path) -> None:
    with served(model, "--ancestor", "none") as url, opened(browser, url, 900, 900) as page:
        learn(page, photos / "clothes")
        page.get_by_text("Units are competing").wait_for()
        page.get_by_text("right in training", exact=True).wait_for()
        page.wait_for_timeout(2000)
        page.locator("#train").screenshot(path=out / "serve-competition.png")


def exported(browser: Any, model: Path, site: Path, out: Path) -> None:
    rivals.Model(model).export("shapes", site, to="web")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with opened(browser, f"http://127.0.0.1:{server.server_port}/", 1100, 720) as page:
        page.get_by_role("button", name="Draw").click()
        triangle(page, "#pad canvas")
        page.screenshot(path=out / "deploy-web.png")
    server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="its program")
    words = parser.parse_args()
    words.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        place = Path(name)
        clothes(place / "photos" / "clothes", 0, 40)
        clothes(place / "photos" / "asked", 40, 1)
        shapes(place / "photos" / "shapes")
        (place / "fresh").mkdir()
        browser = playwright.chromium.launch(executable_path=words.chromium, args=["--no-sandbox"])
        teach(browser, place / "parts", place / "photos", words.out)
        competition(browser, place / "fresh" / "parts", place / "photos", words.out)
        exported(browser, place / "parts", place / "site", words.out)
        browser.close()
    for name in ("page", "serve-tasks", "serve-try", "serve-competition", "deploy-web"):
        path = words.out / f"{name}.png"
        few = Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
        few.save(path, optimize=True)  # a third of the bytes


if __name__ == "__main__":
    main()
