"""A real Chromium on the page of a real server: tabs that note what was asked and complained of."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from served import Served

CHROMIUM = shutil.which("chromium")
# Milliseconds until a wait is given up. What is waited for comes at once on an idle machine; where
# others use every core, a training or the start of a browser takes ten times as long.
PATIENCE = 240_000
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--use-fake-device-for-media-stream"]


def chromium() -> Iterator[Any]:
    """A browser, for as long as a module of tests needs one."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.")
    if CHROMIUM is None:
        pytest.skip("There is no Chromium here; apt-get install chromium.")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield browser
        browser.close()


class Tab:
    """A page, what it asked for, and what it complained of."""

    def __init__(self, browser: Any, server: Served, **options: Any) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "locale": "en-US", **options}
        )
        self.context.set_default_timeout(PATIENCE)  # of every page of it
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.troubles: list[str] = []
        self.refused: list[str] = []
        self.watch(self.page)
        self.open(server)

    def watch(self, page: Any) -> None:
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", lambda message: self.troubles.append(message.text))
        page.on("response", lambda answer: self.note(answer))

    def note(self, answer: Any) -> None:
        if answer.status >= 400:
            words = answer.request.method, answer.url.removeprefix(self.page.url.partition("#")[0])
            self.refused.append(" ".join(words))

    def open(self, server: Served, view: str = "teach") -> None:
        self.page.goto(f"{server.url}#{view}")
        self.page.wait_for_selector("body.ready")

    def card(self, name: str) -> Any:
        return self.page.get_by_role("group", name=f"Class {name}", exact=True)


# What overruns its card, is cut, or wraps where it should not; on the page as it is now.
FAULTS = """() => {
  const found = [];
  const right = (node) => node.getBoundingClientRect().right;
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) found.push(`the page is ${wide} pixels too wide`);
  const pen = document.createElement("canvas").getContext("2d");
  const modal = document.querySelector("dialog[open]");
  const kinds = "button, .button, input, select, label, summary, h1, h2, h3, td, p, b";
  for (const node of document.querySelectorAll(kinds)) {
    const elsewhere = modal && !modal.contains(node);
    const apart = node.closest(".screen-reader, .scroll, .skip");
    if (elsewhere || apart || !node.checkVisibility()) continue;
    const name = `${node.textContent || node.placeholder || node.ariaLabel}`.slice(0, 60);
    const home = node.parentElement.closest(".card, .class, dialog, nav, .undo, main");
    if (home && right(node) > right(home) + 1) found.push(`${name} overruns`);
    const cut = node.scrollWidth > node.clientWidth + 1;
    if (node.matches("button:not(.chip)") && cut) found.push(`${name} is cut`);
    if (node.placeholder && !node.value) {
      const style = getComputedStyle(node);
      pen.font = style.font;
      const sides = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
      const room = node.clientWidth - sides + 1;
      if (pen.measureText(node.placeholder).width > room) found.push(`${name} is cut`);
    }
  }
  const tabs = [...document.querySelectorAll("nav a")];
  if (new Set(tabs.map((each) => each.getBoundingClientRect().top)).size > 1) {
    found.push("the tabs wrap");
  }
  return found;
}"""


def fits(page: Any, where: Any = None) -> None:
    """Nothing overruns, is cut or wraps at the width of a phone, a tablet and a desktop."""
    for width in (360, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(FAULTS) == [], (where, width)


def drop(page: Any, where: str, *paths: Path) -> None:
    """Let files or folders fall onto the page, as from a file manager."""
    box = page.locator(where).bounding_box()
    place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    devtools = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})


def draw(page: Any, where: str, kind: str, number: int) -> None:
    """A circle or a cross with the mouse, each a little different."""
    box = page.locator(where).bounding_box()
    middle = [box[at] + box[size] * (0.5 + 0.02 * (number % 5 - 2))
              for at, size in (("x", "width"), ("y", "height"))]  # fmt: skip
    reach = box["width"] * (0.2 + 0.02 * number)
    turn = [2 * math.pi * step / 12 for step in range(13)]
    lines = [[(math.cos(angle), math.sin(angle)) for angle in turn]]
    if kind == "cross":
        lines = [[(-1.0, -1.0), (1.0, 1.0)], [(1.0, -1.0), (-1.0, 1.0)]]
    for line in lines:
        points = [(middle[0] + reach * x, middle[1] + reach * y) for x, y in line]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point)
        page.mouse.up()
