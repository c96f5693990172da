"""The page of `rivals serve` in a real Chromium, with a real server that is killed on the way."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from page_tabs import PATIENCE, Tab, draw, drop
from rivals.model.advice import (
    CLOSED_FORM,
    NEAREST,
    PIXELS,
    Advice,
    ConfusedPair,
    MorePictures,
)
from served import Served, fill, shape, until

pytest.importorskip("fastapi", reason="fastapi is not installed: rivals[web]")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: rivals[web]")
Serve = Callable[..., Served]


def test_teach_try_download_drop(browser: Any, serve: Serve, tmp_path: Path) -> None:
    from_nothing = ("--ancestor", "none")  # so that there is something to watch
    server = serve(tmp_path / "model", *from_nothing)
    tab = Tab(browser, server)
    page = tab.page

    # A drawn task, named and given its classes by keyboard alone.
    page.get_by_label("Name of a new class").focus()
    page.keyboard.type("circle")
    page.keyboard.press("Enter")
    page.get_by_text("Give the task a name first.").wait_for()
    page.keyboard.type("drawn")  # the name is where the focus went
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the class is still in its field
    tab.card("circle").wait_for()
    page.keyboard.type("cross")
    page.keyboard.press("Enter")
    tab.card("cross").wait_for()
    assert page.get_by_role("button", name="Train", exact=True).is_disabled()
    for kind in ("circle", "cross"):
        tab.card(kind).get_by_role("button", name="Draw").click()
        dialog = page.get_by_role("dialog", name=f"Draw {kind}")
        dialog.get_by_role("button", name="Add and draw the next").click()
        dialog.get_by_text("The drawing is empty").wait_for()
        for number in range(5):
            draw(page, "#pad-dialog canvas", kind, number)
            dialog.get_by_role("button", name="Add and draw the next").click()
            dialog.get_by_text(f"{number + 1} picture").wait_for()
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        tab.card(kind).get_by_text("5 pictures").wait_for()

    # Wrong and huge files are named where they were dropped, and nothing else changes.
    huge = tmp_path / "huge.png"
    huge.write_bytes(b"\x89PNG\r\n" + bytes(11 * 2**20))
    files = [
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no picture"},
        {"name": "half.png", "mimeType": "image/png", "buffer": shape("cross", 0)[:60]},
    ]
    tab.card("circle").locator("input[type=file]").set_input_files(files)
    page.get_by_text("1 other file left out").wait_for()
    told = page.locator("#left-out").text_content()
    assert "notes.txt is not a picture" in told
    assert "half.png is not a picture" in told
    tab.card("circle").locator("input[type=file]").set_input_files(huge)
    page.get_by_text("huge.png has 11.0 MB, but the limit is 10 MB").wait_for()
    tab.card("circle").get_by_text("5 pictures").wait_for()
    assert [each.partition("?")[0] for each in tab.refused] == 2 * ["POST api/picture"]
    assert all("status of 400" in each for each in tab.troubles)  # as the browser notes them

    # Training, watched, and held still meanwhile; then another tab with another task, which waits.
    page.get_by_label("Time limit in minutes").fill("3")
    page.get_by_role("button", name="Train", exact=True).click()
    page.get_by_role("heading", name="Learning drawn").wait_for()
    training = tmp_path / "model.collected" / "trainings" / "000001"
    until(lambda: '"step"' in (training / "events.jsonl").read_text())
    process = int((training / "process").read_text())
    os.kill(process, signal.SIGSTOP)
    other = Tab(browser, server, viewport={"width": 390, "height": 844}, color_scheme="dark")
    other.page.get_by_role("heading", name="Learning drawn").wait_for()
    other.page.get_by_role("button", name="New task").click()
    drop(other.page, "#folders", fill(tmp_path / "uploaded"))
    other.card("cross").get_by_text("6 pictures").wait_for()
    assert other.page.locator("#task-name").input_value() == "uploaded"
    other.page.get_by_label("Time limit in minutes").fill("3")
    other.page.get_by_role("button", name="Train", exact=True).click()

    # A reload in the middle finds everything again.
    page.reload()
    page.wait_for_selector(".live .layers canvas")
    assert page.locator(".live .layers canvas").count() == 3
    named = [each.get_attribute("aria-label") for each in page.locator(".live canvas").all()]
    assert named[2].startswith("Layer 3: 64 blocks of 8 rival units")
    # Units compete in a model without an ancestor, and the page says so.
    page.locator(".phase").get_by_text(re.compile("are competing|competition is over")).wait_for()
    os.kill(process, signal.SIGCONT)

    # A server that is killed without a word: the page says so, and goes on with the next one.
    second = training.with_name("000002") / "process"
    process = int(until(lambda: second.exists() and second.read_text()))
    os.kill(process, signal.SIGSTOP)  # so that it does not end before it was seen
    other.page.get_by_role("heading", name="Learning uploaded").wait_for()
    server.kill()
    other.page.get_by_text("The server does not answer").wait_for()
    server = serve(tmp_path / "model", "--port", str(server.port), *from_nothing)
    other.page.get_by_text("A token is required").wait_for()  # the cookie ended with the server
    door = other.context.new_page()
    door.goto(server.url)
    door.close()
    os.kill(process, signal.SIGCONT)
    other.page.get_by_role("heading", name="Learned uploaded").wait_for()
    other.page.get_by_text("A token is required").wait_for(state="hidden")
    states = until(lambda: [s for _, s in server.trainings()] == ["done", "done"])
    assert states
    other.page.locator(".facts").get_by_text("right on 2 pictures kept aside").wait_for()
    other.page.locator(".phase").get_by_text("Earlier tasks have not changed.").wait_for()
    told = other.page.locator("#announcements").text_content()
    assert re.match(r"Learned uploaded\. \d+ % \(\d+ to \d+\) right on 2 pictures kept", told)
    assert other.page.evaluate("document.documentElement.scrollWidth") <= 390
    other.context.close()

    # Try: the answer follows the drawing; pictures; what is no picture.
    tab.troubles.clear()
    tab.open(server, "try")
    draw(page, "#try canvas", "cross", 3)
    page.locator("#try").get_by_text("Confidence ").wait_for()
    page.locator("#try-task").select_option("drawn")
    page.get_by_label("May answer “none of these”").uncheck()
    page.wait_for_selector("#try .label:text-matches('^(circle|cross)$')")
    page.wait_for_selector("#try .note:text('task drawn')")
    page.wait_for_selector(".choices li:nth-child(2):last-child")  # its classes alone
    page.get_by_role("button", name="Pictures").click()
    crosses = [{"name": f"{n}.png", "mimeType": "image/png", "buffer": shape("cross", n)}
               for n in range(6)]  # fmt: skip
    page.get_by_label("Pictures to try").set_input_files([files[0], *crosses])
    page.get_by_text("notes.txt is not a picture").wait_for()
    page.wait_for_selector(".answers li:nth-child(7) b")

    # Download: a file for a device, with its card.
    tab.open(server, "teach")
    page.locator("#download-task").select_option("uploaded")
    assert page.get_by_role("radio", name="ONNX for apps on phones").is_checked()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    page.get_by_text("the same answer as the model for 100 % of 12 pictures").wait_for()
    assert download.value.suggested_filename == "uploaded-onnx.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        assert archive.namelist() == ["uploaded/uploaded.onnx", "uploaded/CARD.md"]
        assert "circle, cross" in archive.read("uploaded/CARD.md").decode()

    # Drop, after a warning that names the heir; its pictures go with it.
    tab.open(server, "tasks")
    page.get_by_role("article", name="Task drawn").get_by_text("Inside the network").click()
    page.get_by_role("article", name="Task drawn").locator("canvas").nth(2).wait_for()
    page.get_by_role("article", name="Task drawn").get_by_role("button", name="Drop").click()
    warning = page.get_by_role("dialog", name="Drop drawn?")
    warning.get_by_text("uploaded began with what drawn had learned, and keeps it.").wait_for()
    warning.get_by_role("button", name="Keep it").click()
    heir = page.get_by_role("article", name="Task uploaded")
    heir.get_by_text("It began with what drawn had learned.").wait_for()
    page.get_by_role("article", name="Task drawn").get_by_role("button", name="Drop").click()
    warning.get_by_role("button", name="Drop drawn").click()
    page.get_by_role("article", name="Task drawn").wait_for(state="detached")
    assert page.get_by_role("article").count() == 1
    heir.get_by_text("It began with what drawn had learned.").wait_for(state="detached")
    assert [task["name"] for task in server.state()["tasks"]] == ["uploaded"]
    assert not (tmp_path / "model.collected" / "pictures" / "drawn").exists()
    assert all(url.startswith((server.base, "blob:")) for url in [*tab.asked, *other.asked])
    assert [each for each in tab.troubles if "status of 400" not in each] == []
    tab.context.close()
    assert server.stop() == ""


# The painted pixels of each dot in the second layer of the map, block by block.
PAINTED = """([blocks, units]) => {
  const canvas = document.querySelectorAll(".live canvas")[1];
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const found = Array.from({ length: blocks }, () => new Array(units).fill(0));
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) {
    const [block, unit] = [Math.floor((x * blocks) / width), Math.floor((y * units) / height)];
    found[block][unit] += data[4 * (y * width + x) + 3] > 100;
  }
  return found;
}"""


def test_a_competition_is_shown_only_while_units_compete(
    browser: Any, serve: Serve, tmp_path: Path
) -> None:
    """A training with a competition, as another setting would have it; its events are written."""
    place = tmp_path / "model.collected" / "trainings" / "000001"
    place.mkdir(parents=True)
    job = {"id": 1, "task": "shapes", "state": "done", "attempts": 1}
    (place / "job.json").write_text(json.dumps(job))

    def happens(**event: Any) -> None:
        with (place / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    step = {"event": "step", "steps": 100, "seconds_left": 5.0, "accuracy": 50.0}
    happens(event="begins", layers=[{"blocks": 3, "units": 2}, {"blocks": 2, "units": 4}])
    tab = Tab(browser, serve(tmp_path / "model"), reduced_motion="reduce")
    live, phase = tab.page.locator(".live"), tab.page.locator(".phase")
    live.locator("canvas").nth(1).wait_for()
    posteriors = [[[55, 45], [40, 60], [35, 65]], [[2, 10, 18, 70], [78, 14, 6, 2]]]
    happens(**step, step=1, competing=True, winners=[[0, 1, 1], [3, 0]], confidence=[0.6, 0.74],
            posteriors=posteriors)  # fmt: skip
    phase.get_by_text("the larger a dot, the larger the posterior of its unit").wait_for()
    live.get_by_text("mean posterior of the leading units").wait_for()
    assert "67 %" in live.locator(".facts").text_content()
    sizes = until(lambda: [each for each in tab.page.evaluate(PAINTED, [2, 4]) if each[2] > 5])
    for painted, percents in zip(sizes, posteriors[1], strict=True):
        order = [sorted(range(4), key=row.__getitem__) for row in (painted, percents)]
        assert order[0] == order[1], (painted, percents)
    label = live.locator("canvas").nth(1).get_attribute("aria-label")
    assert label == "Layer 2: 2 blocks of 4 rival units, competing, mean posterior 74 %"
    happens(**step, step=50, competing=False, winners=[[0, 1, 0], [3, 1]], confidence=[1.0, 1.0])
    phase.get_by_text("The competition is over").wait_for()
    assert "5 of 14winning units" in live.locator(".facts").text_content()
    label = live.locator("canvas").nth(1).get_attribute("aria-label")
    assert label == "Layer 2: 2 blocks of 4 rival units, one winner in each"
    happens(event="validation", accuracy=75.0, held=80, step=60)
    live.locator(".facts").get_by_text("75 % ± 9").wait_for()
    live.locator(".facts").get_by_text("right on 80 pictures kept aside").wait_for()
    assert tab.troubles == []
    tab.context.close()


def test_advice_is_shown_after_learning(browser: Any, serve: Serve, tmp_path: Path) -> None:
    """Two baselines, the pair that is mixed up most, what more pictures bring; or nothing."""
    more = MorePictures((40.0, 44.0, 48.0), 4.8, 1.4)
    baselines = {PIXELS: 41.0, NEAREST: 52.0}
    pair = ConfusedPair(("<b>cat", "dog"), 7, 14)
    advice = Advice(72.0, 50, True, CLOSED_FORM, baselines, pair, more)
    place = tmp_path / "model.collected" / "trainings" / "000001"
    place.mkdir(parents=True)
    (place / "job.json").write_text(json.dumps({"id": 1, "task": "pets", "attempts": 1,
                                                "state": "done"}))  # fmt: skip

    def happens(**event: Any) -> None:
        with (place / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    happens(event="begins", layers=[{"blocks": 3, "units": 2}])
    mistakes = {"classes": ["<b>cat", "dog"], "confusion": [[18, 7], [7, 18]]}
    happens(event="mistakes", **mistakes, count=14, mistakes=[])
    happens(event="done", accuracy=72.0, held=50, kept=True, grown=[0], advice=advice.to_dict())
    tab = Tab(browser, serve(tmp_path / "model"), viewport={"width": 360, "height": 844})
    live, shown = tab.page.locator(".live"), tab.page.locator(".live details")
    live.get_by_text("With twice as many pictures, about 5 more answers in 100").wait_for()
    live.get_by_text("<b>cat and dog are mixed up most: 7 of 14 mistakes.").wait_for()
    shown.get_by_text("Compared with simpler ways of learning").click()
    rows = [each.text_content() for each in shown.locator("li").all()]
    assert rows == ["linear discriminant (kept)72.0 %", "nearest class mean52.0 %",
                    "logistic regression on pixels41.0 %"]  # fmt: skip
    widths = [each.bounding_box()["width"] for each in shown.locator(".bar i").all()]
    assert widths == sorted(widths, reverse=True)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360

    # A training of an earlier version, or of more pictures of a known task, has none.
    happens(event="begins", layers=[{"blocks": 3, "units": 2}])
    shown.wait_for(state="hidden")
    happens(event="done", accuracy=72.0, held=50, kept=True, grown=[1], advice=None)
    tab.page.get_by_text("The network grew").wait_for()
    assert shown.is_hidden()
    assert tab.troubles == []
    tab.context.close()


NAMELESS = """() => [...document.querySelectorAll("button, input, select, canvas, a")]
  .filter((node) => !(node.ariaLabel || node.textContent.trim() || node.labels?.[0]?.textContent))
  .map((node) => node.outerHTML)"""


def test_every_size_and_light(browser: Any, serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "model")
    tab = Tab(browser, server, color_scheme="light", permissions=["camera"])
    page = tab.page
    page.locator("#task-name").fill("丸と✕" * 5)
    for name in ("circle", "a name that is rather long and does not end so soon after all"[:60]):
        page.get_by_label("Name of a new class").fill(name)
        page.keyboard.press("Enter")
        tab.card(name).wait_for()

    # The camera, a fake one; and none that may be used.
    tab.card("circle").get_by_role("button", name="Camera").click()
    dialog = page.get_by_role("dialog", name="Take pictures of circle")
    dialog.get_by_role("button", name="Hold to record").click()
    dialog.get_by_text("1 picture", exact=True).wait_for()
    page.keyboard.press("Escape")
    (name,) = server.ask("GET", "pictures", task="丸と✕" * 5, name="circle").json()
    stored = server.ask("GET", "picture", task="丸と✕" * 5, name="circle", picture=name)
    assert Image.open(io.BytesIO(stored.content)).size == (112, 112)
    denied = Tab(browser, server, permissions=[])
    denied.page.goto(f"{server.url}#try")
    denied.page.get_by_role("button", name="Camera").last.click()
    denied.page.get_by_text("The camera was not allowed").wait_for()
    denied.context.close()

    # Folders and files that fall where they may, a class with a hidden file, and one folder chosen.
    folder = fill(tmp_path / "chosen", 2)
    (folder / "circle" / ".DS_Store").write_bytes(b"hidden")
    drop(page, "#folders", folder / "circle" / "0.png")
    page.get_by_text("drop single pictures onto a class").wait_for()
    drop(page, "[aria-label='Class circle']", folder / "circle" / "0.png")
    tab.card("circle").get_by_text("2 pictures").wait_for()
    page.locator("#folder-input").set_input_files(folder)
    tab.card("circle").get_by_text("3 pictures").wait_for()
    tab.card("cross").get_by_text("2 pictures").wait_for()

    # A class is renamed, a picture taken out, a class as well.
    title = page.get_by_label("Name of the class circle")
    title.fill("..")
    title.press("Tab")
    tab.card("circle").get_by_text("cannot be named '..'").wait_for()
    title.fill("ring")
    title.press("Tab")
    tab.card("ring").get_by_role("button", name="Move or remove a picture of ring").first.click()
    page.get_by_role("button", name="Remove it").click()
    tab.card("ring").get_by_text("2 pictures").wait_for()
    tab.troubles.clear()

    for width in (1280, 720, 390, 360, 320):
        page.set_viewport_size({"width": width, "height": 800})
        for view in ("teach", "try", "tasks"):
            page.evaluate(f"location.hash = '{view}'")
            page.wait_for_selector(f"#{view}:visible")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (width, view)
            assert page.evaluate(NAMELESS) == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.get_by_role("link", name="Teach").focus()
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    assert tab.troubles == []
    tab.context.close()
    assert server.stop() == ""


def test_a_foreign_model_and_a_link_from_elsewhere(
    browser: Any, serve: Serve, tmp_path: Path, accepted: Callable[..., str]
) -> None:
    """Names are text, whatever they say; the token leaves the address bar on every way."""
    markup = "<img src=x onerror=alert(1)>"
    folder = fill(tmp_path / "shapes", 3)
    (folder / "circle").rename(folder / markup)
    accepted("learn", folder, "--model", tmp_path / "model", "--epochs", "1", "--json")
    server = serve(tmp_path / "model")
    tab = Tab(browser, server)
    assert tab.page.url == f"{server.base}#teach"
    tab.open(server, "tasks")
    tab.page.get_by_text(markup).first.wait_for()
    tab.open(server, "try")
    draw(tab.page, "#try canvas", "cross", 3)
    tab.page.locator(".choices").get_by_text(markup).wait_for()
    assert tab.page.locator("img[src=x]").count() == 0
    assert tab.troubles == []
    tab.context.close()
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    for address in (server.url, server.base):  # the second one has the cookie, but on another page
        page.goto("about:blank")
        page.set_content(f"<a href='{address}'>the page</a>")
        page.get_by_role("link").click()
        page.wait_for_selector("body.ready")
        assert page.url == server.base
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    assert cookie["value"] not in server.url
    context.close()
    assert server.stop() == ""
