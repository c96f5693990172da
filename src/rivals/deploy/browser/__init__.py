"""A page for browsers: a folder that answers camera, files and drawings, offline and on phones.

index.html, *.js, style.css   the page; pixels.js makes of a picture what `rivals.io.pictures` does
model.onnx                    a ticket or a whole model, as the format onnx writes it
ort.js, ort.wasm              onnxruntime-web, one thread
card.json                     classes, preparation of pictures, and the checksum of every file
sw.js, manifest.json, icon.*  a phone keeps the page and opens it without a network
README.txt, *-LICENSE.txt     how to open it, and the licence of the runtime
"""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from rivals.deploy.browser.npm_runtime import find_runtime
from rivals.deploy.export_format import Format, Options, card, formats, write_card
from rivals.deploy.prepared import graph, save, ticket_graph
from rivals.deploy.whole_model import Whole
from rivals.edge.artefact_files import PAGE_MODEL
from rivals.edge.card import sidecar
from rivals.io.checksum import sha256
from rivals.io.files import make_folder, write_bytes
from rivals.tickets.ticket import Ticket

NOTICES = "onnxruntime-notices.txt"  # of what the runtime is built from
WORKER = "sw.js"  # keeps the page; its first lines say which files
COLOURS = {"background_color": "#f6f5f1", "theme_color": "#17594a"}


class WebPage(Format):
    """One picture at a time, in any browser of the last years."""

    extra = "export"
    modules = ("onnx", "onnxscript", "onnxruntime")

    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        runtime, facts = find_runtime(options.runtime), card(ticket, options)
        make_folder(path)
        save(ticket_graph(ticket, True), facts, path / PAGE_MODEL)
        shown = options.calibration
        complete(path, {**facts, "paper": paper(shown, ticket.preprocessing.scale)}, runtime)

    def write_whole(self, whole: Whole, path: Path, options: Options) -> None:
        runtime = find_runtime(options.runtime)
        module, outputs, facts = whole.written(ranked=True)
        make_folder(path)
        save(graph(module, whole.input_shape, True, outputs), facts, path / PAGE_MODEL)
        shown = next(iter(whole.pictures.values())).others
        complete(path, {**facts, "paper": paper(shown, facts["preprocessing"]["scale"])}, runtime)


def paper(images: Tensor | None, scale: float) -> str:
    """What one draws on: black where the edges of these pictures are dark, as in many data sets."""
    if images is None:
        return "white"
    edges = (images[..., 0, :], images[..., -1, :], images[..., :, 0], images[..., :, -1])
    mean = sum(float(each.float().mean()) for each in edges) / len(edges)
    return "black" if mean < scale / 2 else "white"


def complete(path: Path, facts: dict[str, Any], runtime: dict[str, bytes]) -> None:
    """Everything beside the model, and the card over all of it."""
    parts = {each.name: each.read_bytes() for each in (files(__package__) / "page").iterdir()}
    parts |= {**runtime, "manifest.json": manifest(facts), **notices()}
    marks = {PAGE_MODEL: sha256((path / PAGE_MODEL).read_bytes())}
    marks |= {name: sha256(data) for name, data in sorted(parts.items())}
    parts[WORKER] = worker(parts[WORKER], facts, marks)
    marks[WORKER] = sha256(parts[WORKER])
    for name, data in parts.items():
        write_bytes(path / name, data)
    write_card(sidecar(path), {**facts, "files": marks})


def worker(source: bytes, facts: dict[str, Any], marks: dict[str, str]) -> bytes:
    """The service worker with the files that it keeps; another export is another version."""
    version = sha256(json.dumps([facts, marks]).encode())[:16]
    kept = ["./", "card.json", *(name for name in marks if name not in (WORKER, "index.html"))]
    kept = [name for name in kept if not name.endswith(".txt")]
    head = f"const VERSION = {json.dumps(version)};\nconst FILES = {json.dumps(kept)};\n"
    return head.encode() + source


def manifest(facts: dict[str, Any]) -> bytes:
    """What a phone shows on its home screen."""
    tasks = [each["task"] for each in facts["tasks"]] if "tasks" in facts else [facts["task"]]
    name = ", ".join(tasks)
    icons = [
        {"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"},
        {"src": "icon.png", "sizes": "512x512", "type": "image/png", "purpose": "any maskable"},
    ]
    content = {
        "name": f"{name[:60]} · rivals", "short_name": name[:12], "lang": "en",
        "start_url": "./", "scope": "./", "display": "standalone", "icons": icons, **COLOURS,
    }  # fmt: skip
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def notices() -> dict[str, bytes]:
    """npm's package has none; that of Python, which is made from the same sources, has."""
    spec = find_spec("onnxruntime")
    place = Path(spec.origin).with_name("ThirdPartyNotices.txt") if spec and spec.origin else None
    return {NOTICES: place.read_bytes()} if place and place.is_file() else {}


formats.register("web")(WebPage())
