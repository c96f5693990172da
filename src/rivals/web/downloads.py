"""A ticket as a zip: the file for its runtime, compared with the ticket, and its card."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.tickets.ticket import Ticket

TIMEOUT = 600  # seconds
LABELS = {  # in the order of the page: name, what it is for
    "onnx": ("ONNX", "for apps on phones, computers and boards"),
    "web": ("Page for browsers", "answers on any phone; put it on a web server"),
    "litert": ("LiteRT", "for apps on phones; formerly TensorFlow Lite"),
    "executorch": ("ExecuTorch", "for apps on phones, with PyTorch's runtime"),
    "c": ("C source", "for microcontrollers, with any C99 compiler"),
    "onnx-int8": ("ONNX, 8 bits", "a quarter of the size of ONNX"),
    "ort": ("ORT", "for the smallest builds of onnxruntime"),
    "ticket": ("Folder for rivals", "a ticket: safetensors and JSON"),
}
_one_export = threading.Lock()


@dataclass(frozen=True)
class Package:
    """A zip, its file name, and one sentence about its content, also as facts."""

    data: bytes
    filename: str
    summary: str
    compared: dict[str, Any] | None = None  # file, bytes, agreement and images; None: nothing was


def download_formats() -> list[dict[str, Any]]:
    """The formats of a download, with the command that installs what is missing."""
    from rivals.deploy.export_format import formats

    listed: list[dict[str, Any]] = []
    for name in sorted(["ticket", *formats], key=lambda name: [*LABELS, name].index(name)):
        label, purpose = LABELS.get(name, (name, ""))
        install = None
        if name != "ticket" and any(find_spec(each) is None for each in formats[name].modules):
            install = f"pip install 'rivals[{formats[name].extra}]'"
        listed.append({"name": name, "label": label, "purpose": purpose, "install": install})
    return sorted(listed, key=lambda each: each["install"] is not None)


def package(ticket: Ticket, to: str, pictures: Path | None) -> Package:
    """Export in a process of its own, which frees its memory and cannot crash the server."""
    from rivals.deploy.export_format import formats

    if to != "ticket":
        formats[to].check_installed(to)
    stem = re.sub(r"[^\w.-]+", "-", ticket.task).strip("-.") or "ticket"
    with tempfile.TemporaryDirectory(prefix="rivals-") as folder:
        saved = Path(folder) / "ticket"
        ticket.save(saved)
        compared = None
        if to == "ticket":
            summary = f"The ticket of '{ticket.task}' as a folder for rivals."
            data = _zipped(saved, stem, None)
        else:
            made = Path(folder) / f"{stem}{formats[to].suffix}"
            facts = _export(saved, to, made, pictures)
            summary = _summary(made.name, facts)
            compared = {"file": made.name, "bytes": facts["bytes"], **facts["parity"]}
            card = (saved / "README.md").read_bytes() + f"\n{summary}\n".encode()
            data = _zipped(made, stem, card)
    return Package(data, f"{stem}-{to}.zip", summary, compared)


def _export(ticket: Path, to: str, out: Path, pictures: Path | None) -> dict[str, Any]:
    words = [sys.executable, "-m", "rivals.cli.main", "export", str(out), "--to", to]
    words += ["--model", str(ticket), "--json"]
    words += ["--images", str(pictures)] if pictures is not None else []
    with _one_export:
        try:
            ran = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise RivalsError(
                f"Writing '{to}' took longer than {TIMEOUT // 60} minutes; use another format."
            ) from error
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or [""])[-1]
        if last.startswith("rivals: "):
            raise RivalsError(last.removeprefix("rivals: "))
        raise RivalsError(f"The format '{to}' could not be written; use another format.")
    facts: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return facts


def _summary(name: str, facts: dict[str, Any]) -> str:
    parity = facts["parity"]
    return (
        f"{name}, {facts['bytes']:,} bytes: the same class as the ticket for "
        f"{100 * parity['agreement']:.1f} % of {parity['images']:,} pictures compared."
    )


def _zipped(made: Path, stem: str, card: bytes | None) -> bytes:
    """A file or folder as a zip, with the card beside it unless it has one."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if made.is_dir():
            for path in sorted(made.rglob("*")):
                if path.is_file():
                    archive.write(path, f"{stem}/{path.relative_to(made)}")
        else:
            archive.write(made, f"{stem}/{made.name}")
        for beside in made.parent.glob(f"{made.name}.json"):
            archive.write(beside, f"{stem}/{beside.name}")
        if card is not None:
            archive.writestr(f"{stem}/CARD.md", card)
    return out.getvalue()
