"""A ticket as a zip: the file for its runtime, checked against the ticket, and its card."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.model.folder import ModelFolder

LONGEST = 600  # seconds
_one = threading.Lock()


@dataclass(frozen=True)
class Package:
    """A zip, its name, and one sentence about what is in it."""

    data: bytes
    name: str
    sentence: str


def package(model: ModelFolder, task: str, to: str, pictures: Path | None) -> Package:
    """Export in a process of its own: what it loads is gone afterwards, and it cannot harm us."""
    from rivals.deploy.export_format import formats

    if to != "ticket":
        formats[to].check_installed(to)
    plain = re.sub(r"[^\w.-]+", "-", task).strip("-.") or "ticket"
    with tempfile.TemporaryDirectory(prefix="rivals-") as room:
        model.ticket(task).save(Path(room) / "ticket")
        card = (Path(room) / "ticket" / "README.md").read_bytes()
        if to == "ticket":
            made = Path(room) / "ticket"
            sentence = f"The ticket of '{task}', as rivals keeps it."
        else:
            made = Path(room) / f"{plain}{formats[to].suffix}"
            facts = _export(Path(room) / "ticket", to, made, pictures)
            sentence = _sentence(made.name, facts)
        data = _zipped(made, plain, card, sentence, to == "ticket")
    return Package(data, f"{plain}-{to}.zip", sentence)


def _export(ticket: Path, to: str, out: Path, pictures: Path | None) -> dict[str, Any]:
    words = [sys.executable, "-m", "rivals.cli.main", "export", str(out), "--to", to]
    words += ["--model", str(ticket), "--json"]
    words += ["--images", str(pictures)] if pictures is not None else []
    with _one:
        try:
            ran = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired as error:
            raise RivalsError(
                f"Writing '{to}' took longer than {LONGEST // 60} minutes; use another format."
            ) from error
    if ran.returncode != 0:
        last = (ran.stderr.strip().splitlines() or [""])[-1]
        known = last.startswith("rivals: ")
        raise RivalsError(
            last.removeprefix("rivals: ") if known else f"The format '{to}' could not be written."
        )
    facts: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return facts


def _sentence(name: str, facts: dict[str, Any]) -> str:
    parity = facts["parity"]
    return (
        f"{name}, {facts['bytes']:,} bytes: the same class as the ticket for "
        f"{100 * parity['agreement']:.1f} % of {parity['images']:,} pictures compared."
    )


def _zipped(made: Path, plain: str, card: bytes, sentence: str, has_card: bool) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if made.is_dir():
            for path in sorted(made.rglob("*")):
                if path.is_file():
                    archive.write(path, f"{plain}/{path.relative_to(made)}")
        else:
            archive.write(made, f"{plain}/{made.name}")
        for beside in made.parent.glob(f"{made.name}.json"):
            archive.write(beside, f"{plain}/{beside.name}")
        if not has_card:
            archive.writestr(f"{plain}/CARD.md", card + f"\n{sentence}\n".encode())
    return out.getvalue()
