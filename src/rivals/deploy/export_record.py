"""What exports of a ticket have shown, kept beside it in `exports.json` for `rivals info`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from rivals.deploy.exported import Exported
from rivals.errors import RivalsError
from rivals.experiment.run_folder import RunFolder
from rivals.io.files import read_json, write_json
from rivals.tickets.ticket import EXPORTS

NAME = EXPORTS


def remember(model: Path, made: Exported) -> None:
    """Write down what this export has shown, where the ticket's folder can be written."""
    ticket = model if (model / "ticket.json").exists() else RunFolder(model).ticket(made.tasks[0])
    facts: dict[str, Any] = {"bytes": made.bytes, "parity": made.parity.to_dict()}
    if made.format == "c":
        facts["sizes"] = json.loads((made.path / "card.json").read_text())["sizes"]
    with contextlib.suppress(RivalsError):
        write_json(ticket / NAME, {**remembered(ticket), made.format: facts})


def remembered(ticket: Path) -> dict[str, Any]:
    """By format; nothing where nothing was exported, or where the file cannot be read."""
    if not (ticket / NAME).exists():
        return {}
    try:
        return read_json(ticket / NAME, "list of exports")
    except RivalsError:
        return {}
