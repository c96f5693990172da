"""A tour of the page in Chromium: camera and videos, edits, results, undo, projects, languages,
keyboard, and what axe-core finds. One browser and one server for all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from npm_packages import npm_package
from page_tabs import Tab, draw, fits
from rivals.model.learning import learn
from rivals.web.collection import Collection
from rivals.web.sample import sample_pictures
from served import Served, shape, until

pytest.importorskip("fastapi", reason="fastapi is not installed: rivals[web]")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: rivals[web]")
AXE = "4.10.3"
VIDEO = Path(__file__).parent / "fixtures" / "colours.webm"  # two seconds of changing colours


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a model that has learned the sample, with the events of that training."""
    model = tmp_path_factory.mktemp("tour") / "model"
    beside = model.with_name("model.collected")
    training = beside / "trainings" / "000001"
    training.mkdir(parents=True)
    collection = Collection(beside / "pictures")
    collection.add_tasks(sample_pictures("digits"))
    (training / "job.json").write_text(
        '{"id": 1, "task": "digits", "state": "done", "attempts": 1}'
    )
    told: list[dict[str, Any]] = []
    learn(collection.path("digits"), model, listener=told.append)
    # Digits are learned well; one mistake is added, to be shown.
    (mistakes,) = [event for event in told if event["event"] == "mistakes"]
    picture = collection.names("digits", "3")[0]
    wrong = {"picture": f"/pictures/digits/3/{picture}", "label": "3", "answer": "8",
             "confidence": 0.83}  # fmt: skip
    mistakes |= {"count": 1, "mistakes": [wrong], "confusion": [[29, 0, 1], [0, 30, 0], [0, 0, 30]]}
    (training / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    served = Served(model)
    yield served
    assert served.stop() == ""


def counts(server: Served) -> dict[str, int]:
    return {
        each["name"]: each["count"]
        for task in server.state()["collected"]
        for each in task["classes"]
    }


COUNT_PICTURES = """() => {
  const own = HTMLCanvasElement.prototype.toBlob;
  window.taken = 0;
  HTMLCanvasElement.prototype.toBlob = function (...words) {
    window.taken += 1;
    own.apply(this, words);
  };
}"""


def test_results_camera_video_and_moved_pictures(browser: Any, server: Served) -> None:
    tab = Tab(browser, server, permissions=["camera"])
    page = tab.page
    shown = page.locator(".results")
    shown.get_by_role("img", name="Percent right by the share of the pictures").wait_for()
    shown.get_by_text("More pictures would help little").wait_for()
    shown.get_by_text("Rows: what it is. Columns: what was answered.").wait_for()
    cells = [
        each.text_content() for each in shown.locator("tbody tr").first.locator("th, td").all()
    ]
    assert cells == ["3", "29", "", "1", "97 %"]
    shown.get_by_text("3, taken for 8 (83\u00a0%)").wait_for()
    shown.get_by_role("button", name="3, taken for 8").click()
    page.get_by_role("dialog", name="A picture of 3").get_by_role("button", name="Close").click()

    # A burst while the button is held, by mouse and by keyboard; the preview is mirrored.
    tab.card("8").get_by_role("button", name="Camera").click()
    page.wait_for_selector(".record:not(:disabled)")
    assert page.locator("#camera-dialog video.mirrored").count() == 1
    hold = page.get_by_role("button", name="Hold to record")
    hold.hover()
    page.mouse.down()
    until(lambda: counts(server)["8"] >= 33)
    page.mouse.up()
    before = until(lambda: counts(server)["8"])
    hold.focus()
    page.keyboard.down(" ")
    until(lambda: counts(server)["8"] >= before + 2)
    page.keyboard.up(" ")

    # One picture of a burst is refused, for it is there already: the others are added.
    page.evaluate(COUNT_PICTURES)
    held, stored = list[Any](), counts(server)["8"]
    refused = {
        "status": 400,
        "content_type": "application/json",
        "body": json.dumps({"message": "Twice. " * 60}),
    }
    page.route("**/api/picture?*", lambda route: held.append(route), times=1)
    hold.hover()
    page.mouse.down()
    until(lambda: page.evaluate("taken") >= 5 and held)
    page.mouse.up()
    held[0].fulfill(**refused)
    page.unroute("**/api/picture?*")
    until(lambda: counts(server)["8"] >= stored + 2)

    # A message that moves the button away from under the mouse does not end a burst.
    page.route("**/api/picture?*", lambda route: route.fulfill(**refused))
    taken = page.evaluate("taken")
    hold.hover()
    page.mouse.down()
    until(lambda: page.evaluate("taken") >= taken + 8)
    page.mouse.up()
    page.unroute("**/api/picture?*")
    page.keyboard.press("Escape")
    assert page.locator(".recording").count() == 0

    # A drawing that could not be sent is still there.
    tab.card("8").get_by_role("button", name="Draw").click()
    draw(page, "#pad-dialog canvas", "circle", 0)
    page.route("**/api/picture?*", lambda route: route.abort(), times=1)
    add = page.get_by_role("button", name="Add and draw the next")
    add.click()
    page.get_by_role("dialog").get_by_text("The server does not answer").wait_for()
    stored = counts(server)["8"]
    add.click()
    until(lambda: counts(server)["8"] == stored + 1)
    page.keyboard.press("Escape")
    tab.troubles[:] = [each for each in tab.troubles if "Failed to load" not in each]

    # A video becomes pictures; what is none is named.
    broken = {"name": "broken.mp4", "mimeType": "video/mp4", "buffer": b"no video"}
    files = tab.card("5").locator("input[type=file]")
    files.set_input_files(VIDEO)
    until(lambda: counts(server)["5"] >= 36)  # four a second, from the browser
    files.set_input_files([broken, {**broken, "name": "empty.mp4", "buffer": b""}])
    page.get_by_text("broken.mp4 is a video that this browser cannot play").wait_for()
    page.get_by_text("1 other file left out").wait_for()

    # A picture is moved by keyboard, another by mouse; then the task is to be learned anew.
    anew = page.get_by_label("Start over with these pictures alone")
    assert anew.is_checked()  # they were learned here, and would count twice
    anew.uncheck()
    thumb = tab.card("3").get_by_role("button", name="Move or remove a picture of 3").first
    thumb.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="A picture of 3")
    dialog.get_by_role("button", name="5", exact=True).focus()
    page.keyboard.press("Enter")
    dialog.wait_for(state="hidden")
    until(lambda: counts(server)["3"] == 29)
    tab.card("3").get_by_text("29 pictures").wait_for()
    assert anew.is_checked()
    tab.card("3").locator(".thumb").first.drag_to(tab.card("5").locator(".class-head"))
    until(lambda: counts(server)["3"] == 28)
    page.get_by_label("Name of a new class").fill("other")
    page.keyboard.press("Enter")
    page.get_by_text("The classes have changed, so it starts over").wait_for()
    assert page.locator("#anew").is_disabled()
    assert [each for each in tab.troubles if "RANGE_NOT" not in each] == []  # the empty video
    tab.context.close()


UNMARKED = """() => {
  const names = "noscript, .word, .model, option, .number";
  const shown = (node) => node.checkVisibility() && !node.closest(names);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode.textContent.replace(/«[^»]*»/g, "");
    if (/\\p{L}{2}/u.test(text) && shown(texts.currentNode.parentElement)) found.push(text);
  }
  for (const node of document.querySelectorAll("[aria-label], [placeholder], [title]")) {
    for (const name of ["aria-label", "placeholder", "title"]) {
      const text = node.getAttribute(name)?.replace(/«[^»]*»/g, "") ?? "";
      if (/\\p{L}{2}/u.test(text)) found.push(text);
    }
  }
  return found;
}"""


NAMES = r"digits|model|other|kB|ONNX|ORT|LiteRT|ExecuTorch|pip install '[^']*'"


def test_languages(browser: Any, server: Served) -> None:
    """The browser's language, the user's choice, and one in which every sentence is marked."""
    tab = Tab(browser, server, locale="de-AT")
    page = tab.page
    page.get_by_role("heading", name="Bring ihm etwas Neues bei").wait_for()
    assert page.evaluate("document.documentElement.lang") == "de"
    for view in ("teach", "try", "tasks"):
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for_selector(f"#{view}:visible")
        fits(page, view)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("location.hash = 'teach'")
    # What the server says most often is translated, too.
    wrong = {"name": "leer.png", "mimeType": "image/png", "buffer": b""}
    page.get_by_label("Bilder von 8", exact=True).set_input_files(wrong)
    page.get_by_text("leer.png ist kein lesbares Bild; nimm PNG").wait_for()
    page.get_by_label("Sprache").select_option("en")
    page.get_by_role("heading", name="Teach it something new").wait_for()
    page.reload()
    page.get_by_role("heading", name="Teach it something new").wait_for()

    def marked(route: Any) -> None:
        text = route.fetch().text()
        text = re.sub(r'(?<=: )"([^"]*)"|(?<=[\[ ])"([^"]*)"(?=[\],])',
                      lambda found: f'"«{found[1] or found[2]}»"', text)  # fmt: skip
        route.fulfill(body=re.sub(r"(\{\w+\})", r"»\1«", text), content_type="text/javascript")

    page.route("**/page/english.js", marked)
    page.reload()
    page.wait_for_selector("body.ready")
    for view in ("teach", "try", "tasks"):
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for_selector(f"#{view}:visible")
        found = [re.sub(NAMES, "", each) for each in page.evaluate(UNMARKED)]
        assert [each for each in found if re.search(r"[^\W\d]{2}", each)] == [], view
    tab.context.close()


def test_the_keyboard_reaches_everything_in_order(browser: Any, server: Served) -> None:
    """Tab visits everything once, in the order of the document, and what has the focus is seen."""
    tab = Tab(browser, server)
    page = tab.page
    page.goto(server.base)  # without the part after #, where a browser would begin
    page.wait_for_selector("body.ready")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = []
    for _ in range(200):
        page.keyboard.press("Tab")
        place = page.evaluate("""() => {
          const node = document.activeElement;
          if (node === document.body) return null;
          const all = [...document.querySelectorAll("*")];
          const style = getComputedStyle(node);
          return [all.indexOf(node), node.checkVisibility(), style.outlineStyle, node.tagName];
        }""")
        if place is None:
            break
        assert place[1], place
        assert place[2] == "solid" or place[3] == "INPUT", place
        seen.append(place[0])
    assert len(seen) > 20
    assert seen == sorted(set(seen))
    tab.context.close()


def test_axe_and_layout_in_every_state(
    browser: Any, server: Served, serve: Callable[..., Served], tmp_path: Path
) -> None:
    """In light and dark, and at three sizes: whatever a person may have before them."""
    axe = (npm_package("axe-core", AXE) / "axe.min.js").read_text()
    tab = Tab(browser, server, permissions=["camera"], reduced_motion="reduce")
    page = tab.page

    def look(where: str) -> None:
        """No rule of axe-core is broken, the best practices included; and nothing overruns."""
        for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            options = {"resultTypes": ["violations"], **rules}
            found = page.evaluate("(options) => axe.run(document, options)", options)
            told = [(each["id"], [node["html"][:200] for node in each["nodes"]])
                    for each in found["violations"]]  # fmt: skip
            assert told == [], (where, scheme)
        fits(page, where)

    page.evaluate(axe)
    page.get_by_text("Compared with simpler ways of learning").click()
    card = page.get_by_role("group", name="Class 8")
    wrong = {"name": "empty.png", "mimeType": "image/png", "buffer": b""}
    card.locator("input[type=file]").set_input_files([wrong, {**wrong, "name": "other.png"}])
    page.locator("#left-out > .error").get_by_text("is not a picture that can be read").wait_for()
    page.get_by_text("1 other file left out").click()
    look("results and refused files")
    for button in ("Draw", "Camera", "Move or remove a picture of 8"):
        card.get_by_role("button", name=button).first.click()
        page.wait_for_selector("dialog[open]")
        look(button)
        page.keyboard.press("Escape")
        page.wait_for_selector("dialog[open]", state="detached")
    page.evaluate("location.hash = 'try'")
    page.get_by_text("No picture yet.").wait_for()
    page.get_by_role("button", name="Pictures").click()
    page.get_by_label("Pictures to try").set_input_files(
        [wrong, {**wrong, "name": "a drawing of a digit.png", "buffer": shape("circle", 0)}]
    )
    page.wait_for_selector(".answers li:nth-child(2) b")
    look("answers to files")
    page.locator("#try").get_by_role("button", name="Draw", exact=True).click()
    draw(page, "#try canvas", "circle", 0)
    page.wait_for_selector("#try .choices li")
    look("an answer to a drawing")
    page.get_by_role("button", name="What decided?", exact=True).click()
    heat = page.get_by_role("dialog", name="What decided")
    heat.locator("img").wait_for()
    heat.get_by_text(
        re.compile("What decided is|What counts most|No single part|No part")
    ).wait_for()
    look("what decided")
    page.keyboard.press("Escape")
    page.evaluate("location.hash = 'tasks'")
    page.get_by_text("Inside the network").click()
    page.get_by_text("Free connections in each layer").click()
    look("tasks")
    page.get_by_role("button", name="Drop").click()
    look("the question before a drop")
    page.get_by_role("button", name="Drop digits").click()
    page.get_by_role("button", name="Undo").wait_for()
    look("undo")
    page.get_by_role("button", name="Undo").click()
    page.locator("#undo").wait_for(state="hidden")
    until(lambda: server.state()["tasks"])
    tab.context.close()

    # An empty page, units that compete, a training that failed, and a server that is gone.
    place = tmp_path / "model.collected" / "trainings" / "000001"
    other = serve(tmp_path / "model")
    tab = Tab(browser, other, reduced_motion="reduce")
    page = tab.page
    page.evaluate(axe)
    for view in ("teach", "try", "tasks"):
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for_selector(f"#{view}:visible")
        look(f"empty {view}")
    other.kill()
    page.get_by_text("The server does not answer").wait_for()
    look("no server")
    tab.context.close()
    place.mkdir()
    job = {"id": 1, "task": "shapes", "state": "done", "attempts": 1}
    (place / "job.json").write_text(json.dumps(job))
    step = {"event": "step", "step": 1, "steps": 9, "seconds_left": 5.0, "accuracy": 50.0,
            "competing": True, "winners": [[0] * 200], "confidence": [0.6],
            "posteriors": [[[60, 40]] * 200]}  # fmt: skip
    begins = {"event": "begins", "layers": [{"blocks": 200, "units": 2}], "steps": 9}
    (place / "events.jsonl").write_text(f"{json.dumps(begins)}\n{json.dumps(step)}\n")
    other = serve(tmp_path / "model")
    tab = Tab(browser, other, reduced_motion="reduce")
    page = tab.page
    page.evaluate(axe)
    page.get_by_text("Units are competing").wait_for()
    look("units that compete")
    other.kill()
    tab.context.close()
    (place / "job.json").write_text(json.dumps({**job, "state": "failed", "message": "No memory."}))
    tab = Tab(browser, serve(tmp_path / "model"), reduced_motion="reduce")
    page = tab.page
    page.evaluate(axe)
    page.locator(".phase").get_by_text("No memory. The model is as it was.").wait_for()
    look("a training that failed")
    tab.context.close()


def test_undo_and_projects(browser: Any, server: Served, tmp_path: Path) -> None:
    tab = Tab(browser, server)
    page, before = tab.page, counts(server)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the project").click()
    assert download.value.suggested_filename == "model-project.zip"
    download.value.save_as(tmp_path / "project.zip")
    tab.open(server, "tasks")
    task = page.get_by_role("article", name="Task digits")
    task.get_by_role("button", name="Drop").click()
    page.get_by_role("button", name="Drop digits").click()
    page.get_by_role("button", name="Undo").wait_for()
    assert (server.state()["tasks"], counts(server)) == ([], {})
    page.get_by_role("button", name="Undo").click()
    task.wait_for()
    assert counts(server) == before
    chosen = page.get_by_role("button", name="digits", exact=True, pressed=True)
    page.get_by_role("link", name="Teach").click()
    chosen.wait_for()  # it can be trained and changed again at once
    page.get_by_role("link", name="Tasks").click()
    task.get_by_role("button", name="Drop").click()
    page.get_by_role("button", name="Drop digits").click()
    page.get_by_role("button", name="Delete for good").click()
    page.locator("#undo").wait_for(state="hidden")
    assert "no drop that could be undone" in server.ask("POST", "undo").json()["message"]
    assert not (server.model.with_name("model.collected") / "dropped").exists()

    # The project brings the pictures back; a second time it is refused.
    tab.open(server, "teach")
    page.get_by_label("A project file").set_input_files(tmp_path / "project.zip")
    tab.card("8").wait_for()
    page.locator("#project").get_by_text("pictures came with the project.").wait_for()
    assert counts(server) == {name: count for name, count in before.items() if count}
    page.get_by_label("A project file").set_input_files(tmp_path / "project.zip")
    page.get_by_text("'digits' are collected here already").wait_for()
    page.get_by_role("button", name="New task").click()
    page.get_by_role("button", name="Load a sample").click()
    page.locator("#project").get_by_text("'digits' are collected here already").wait_for()
    assert all("status of 400" in each for each in tab.troubles)
    tab.context.close()
