"""`rivals check`: whether a model, a run, a ticket, an ancestor or an export is whole.

A packed model is unpacked into a temporary folder, and that is checked as every model.

Everything is read by the readers that the other verbs use; what they refuse is damaged. Of a model
every ticket is also compared with the network that it is cut from, and with the history.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rivals.edge import artefact
from rivals.edge.artefact_files import NATIVE, check_export, find_suffix
from rivals.edge.runtime import RUNTIMES
from rivals.errors import RivalsError
from rivals.experiment.run_check import check_run
from rivals.io import signatures
from rivals.io.locks import LOCK_NAME
from rivals.io.reading import is_link, printable
from rivals.learn.masked_ticket import compare_with_masked
from rivals.model import (
    ancestor_file,
    folder,
    folder_writing,
    manifest,
    packing,
    spare_space,
    stored_file,
    task_file,
)
from rivals.model.folder import DAMAGE, ModelFolder
from rivals.model.folder_kind import folder_kind, is_exported_folder
from rivals.model.history import ModelHistory
from rivals.tickets.ticket import check_ticket

WHOLE, DAMAGED, NOTE = "whole", "damaged", "note"
MODEL, PACKED = "model", "packed model"
LISTED = 5  # names in a note
OF_A_MODEL = {
    manifest.NAME, stored_file.FOLDER, signatures.NAME, LOCK_NAME, spare_space.NAME
}  # fmt: skip


@dataclass(frozen=True)
class CheckedPart:
    """What was found of one part."""

    part: str
    state: str  # whole, damaged or note
    said: str = ""


@dataclass
class CheckReport:
    """All that was found."""

    path: Path
    kind: str  # model, packed model, run, ticket, ancestor or export
    parts: list[CheckedPart] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return all(each.state != DAMAGED for each in self.parts)

    def to_dict(self) -> dict[str, Any]:
        parts = [vars(each) for each in self.parts]
        return {"path": str(self.path), "kind": self.kind, "whole": self.whole, "parts": parts}

    def note(self, part: str, said: str) -> None:
        self.parts.append(CheckedPart(part, NOTE, said))

    @contextlib.contextmanager
    def part(self, name: str, said: str = "") -> Iterator[None]:
        """One part: whole, unless the block raises an error."""
        try:
            yield
        except (RivalsError, *DAMAGE) as error:
            what = str(error)
            if not isinstance(error, RivalsError):
                what = f"Its parts do not fit ({type(error).__name__})."
            self.parts.append(CheckedPart(name, DAMAGED, printable(what, 500)))
        else:
            self.parts.append(CheckedPart(name, WHOLE, said))


def check(path: Path, since: str | None = None, key: Path | None = None) -> CheckReport:
    """Check what is at `path`; RivalsError where there is nothing that could be checked.

    Args:
        path: A model, packed or not, a run, a ticket, an ancestor or an exported file.
        since: A hash of the history of a model: its tickets of that time must have every bit.
        key: The file of a public key: what is there must be signed with its private key.
    """
    kind = _kind(path)
    if since is not None:
        if kind not in (MODEL, PACKED):
            raise RivalsError(f"--since is for models, but {path} is no model; leave it out.")
        ModelHistory().at(since)  # refuses what is no hash
    report = CheckReport(path, kind)
    checks: dict[str, Callable[[CheckReport], None]] = {
        "run": _run, "ticket": _ticket, "export": _export, "ancestor": _ancestor,
    }  # fmt: skip
    if kind == PACKED and not os.path.lexists(signatures.place(path)):
        _packed(report, since, key)
        return report
    if kind == PACKED:
        _packed(report, since, None)
    elif kind == MODEL:
        _model(report, since)
    else:
        checks[kind](report)
    _signature(report, key)
    return report


def _signature(report: CheckReport, key: Path | None) -> None:
    if key is not None:
        with report.part("signature", f"fits {key}"):
            signatures.check(report.path, key)
    elif os.path.lexists(signatures.place(report.path)):
        report.note("signature", "is there; check it with --require-signature KEY.pub")


def _kind(path: Path) -> str:
    if is_exported_folder(path):
        return "export"
    if path.is_dir() or not path.exists():
        return folder_kind(path)
    if packing.is_packed(path):
        return PACKED
    if path.suffix.lower() in RUNTIMES:
        return "export"
    raise RivalsError(
        f"{path} is a file, but a model, a run, a ticket or an exported file was expected "
        f"({', '.join(suffix for suffix in RUNTIMES if suffix.startswith('.'))})."
    )


# Models ------------------------------------------------------------------------------------------


def _packed(report: CheckReport, since: str | None, key: Path | None) -> None:
    """The model in a packed file, and the signature in it."""
    with contextlib.ExitStack() as stack:
        with report.part("packed file", f"{report.path.stat().st_size:,} bytes"):
            inner = CheckReport(stack.enter_context(packing.unpacked(report.path)), MODEL)
        if not report.whole:
            return
        _model(inner, since)
        _signature(inner, key)
        for each in inner.parts:
            said = each.said.replace(str(inner.path), str(report.path))
            report.parts.append(replace(each, said=said))


def _model(report: CheckReport, since: str | None) -> None:
    path = report.path
    ancestor = None
    with report.part(manifest.NAME):
        model = ModelFolder.open(path)
    if report.whole and model.description.ancestor:
        named = model.description.ancestor
        stored = f"{named.bytes:,} bytes" if named.bytes else "comes with this version"
        with report.part(f"ancestor '{named.name}'", stored):
            ancestor = model.ancestor
    if report.whole:
        with report.part("network"):
            network = folder.empty(model.description, ancestor).network
    if not report.whole:
        return
    for task in model.tasks:
        with report.part(f"file of '{task.name}'", f"{task.bytes:,} bytes"):
            task_file.read(path, task, network)
    if report.whole:
        with report.part("tasks together"):
            model.method  # noqa: B018 - loads them all
    if report.whole:
        for task in model.tasks:
            with report.part(f"ticket of '{task.name}'"):
                apart = compare_with_masked(model.method, model.ticket(task.name))
                said = f"equals its network ({apart:.0e} apart)"
            if report.parts[-1].state == WHOLE:
                report.parts[-1] = CheckedPart(f"ticket of '{task.name}'", WHOLE, said)
        _history(report, model, since)
    _left_over(report, model, since)


def _history(report: CheckReport, model: ModelFolder, since: str | None) -> None:
    history = model.description.history
    if history is None:
        said = "there is none: rivals 0.1 wrote this model; it begins with the next lesson or drop"
        if since is None:
            report.note("history", said)
        else:
            report.parts.append(CheckedPart("history", DAMAGED, said))
        return
    now = history.now()
    names = dict(zip(now.marks, (task.name for task in model.tasks), strict=True))
    with report.part("history", f"{len(history.lines):,} events, newest {now.link or 'none'}"):
        changed = [names[n] for n, mark in now.marks.items() if model.mark(names[n]) != mark]
        if changed:
            raise RivalsError(
                f"The tickets of {_some(changed)} are not those that were learned: their marks in "
                "the history differ."
            )
    if since is None:
        return
    then = history.at(since)
    if then is None:
        said = f"{since} is not in the history: this is another model, or its history was replaced"
        report.parts.append(CheckedPart("since", DAMAGED, said))
        return
    same = [names[n] for n, mark in then.marks.items() if now.marks.get(n) == mark]
    refined = [names[n] for n, mark in then.marks.items() if now.marks.get(n, mark) != mark]
    gone = len(then.marks) - len(same) - len(refined)
    state = WHOLE if report.parts[-1].state == WHOLE else DAMAGED
    said = f"every bit is the same in {_some(same)}; refined: {_some(refined)}; dropped: {gone}"
    report.parts.append(CheckedPart(f"since {then.link[:16]}", state, said))


def _left_over(report: CheckReport, model: ModelFolder, since: str | None) -> None:
    """Files that no description names: nothing reads them."""
    inside = model.path / stored_file.FOLDER
    left = [] if is_link(inside) else _names(inside) - model.description.files()
    ours = sorted(name for name in left if folder_writing.OURS.fullmatch(name))
    if ours:
        said = f"{_some(ours)} belong to no task; the next lesson or drop removes them"
        state = NOTE if since is None else DAMAGED  # what was dropped must leave no file behind
        report.parts.append(CheckedPart("files left behind", state, said))
    others = sorted(set(left) - set(ours)) + sorted(_names(model.path) - OF_A_MODEL)
    if others:
        report.note("other files", f"{_some(others)}; they are not used")


def _names(place: Path) -> set[str]:
    try:
        return set(os.listdir(place))
    except OSError:
        return set()


def _some(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return printable(", ".join(names[:LISTED]) + more) if names else "none"


# Runs, tickets, exports --------------------------------------------------------------------------


def _run(report: CheckReport) -> None:
    with report.part("run"):
        _note(report, check_run(report.path))


def _ticket(report: CheckReport) -> None:
    with report.part("ticket"):
        _note(report, check_ticket(report.path))


def _ancestor(report: CheckReport) -> None:
    with report.part("ancestor"):
        found = ancestor_file.read(report.path)
        _note(report, [
            f"The ancestor {printable(found.name)}, {found.architecture} with "
            f"{found.card.get('weights')} weights, trained on {found.card.get('trained_on')}.",
            "The checksum of its tensors fits; they are finite and have the shape of its network.",
        ])  # fmt: skip


def _export(report: CheckReport) -> None:
    """Checksums and bounds; then it answers once, unless that would run native code."""
    path = report.path
    with report.part("files"):
        _note(report, check_export(path))
    if not report.whole:
        return
    suffix = find_suffix(path)
    package = None if suffix in NATIVE else RUNTIMES[suffix][2]
    if package is None:
        report.note("program", "was not run: it is native code")
    elif find_spec(package) is None:
        report.note("program", f"was not run: {package} is not installed")
    else:
        with report.part("answers", "are finite"):
            opened = artefact.load(path)
            opened.answers(np.zeros((1, *opened.card.input_shape), np.uint8))


def _note(report: CheckReport, facts: list[str]) -> None:
    for fact in facts:
        report.note("found", fact)
