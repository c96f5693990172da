"""Every export: write, run in its own runtime, compare, and only then put in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rivals.deploy.export_format import Options, formats
from rivals.deploy.output_path import check_place, place
from rivals.deploy.parity import Parity, check, compare
from rivals.deploy.ticket_source import TicketSource
from rivals.deploy.whole_model import Whole, compare_whole
from rivals.edge.artefact import load
from rivals.edge.card import sidecar


@dataclass(frozen=True)
class Exported:
    """What was put in place, and how it compares."""

    path: Path
    format: str
    tasks: tuple[str, ...]
    bytes: int
    parity: Parity
    int8: float | None = None  # share of the weights that are bytes

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "format": self.format,
            "tasks": list(self.tasks),
            "bytes": self.bytes,
            "int8": self.int8,
            "parity": self.parity.to_dict(),
        }


def export(source: TicketSource, name: str, out: Path, options: Options | None = None) -> Exported:
    """Write the ticket of `source` as `name` to `out`, the same answers or nothing."""
    chosen = formats[name]
    chosen.check_installed(name)
    check_place(out, chosen.suffix)
    options = replace(options or Options(), calibration=source.pictures.others)
    with place(out) as path:
        chosen.write(source.ticket, path, options)
        artefact = load(path, run_native=True)  # it was written just now
        parity = compare(source.ticket, artefact, source.pictures)
        check(parity, chosen, name)
    tasks = (source.ticket.task,)
    return Exported(out, name, tasks, size(out), parity, artefact.card.int8)


def export_whole(source: Whole, name: str, out: Path, options: Options | None = None) -> Exported:
    """Write all tasks of `source` as one artefact that names the task by itself."""
    chosen = formats[name]
    chosen.check_installed(name)
    check_place(out, chosen.suffix)
    with place(out) as path:
        chosen.write_whole(source, path, options or Options())
        parity = compare_whole(source, load(path))
        check(parity, chosen, name)
    return Exported(out, name, source.tasks, size(out), parity)


def size(path: Path) -> int:
    """Bytes of an artefact, with the card beside it."""
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    beside = sidecar(path)
    if beside.is_file() and beside not in files:
        files.append(beside)
    return sum(file.stat().st_size for file in files)
