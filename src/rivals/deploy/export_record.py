"""What exports of a ticket have shown, kept beside it in `exports.json` for `rivals info`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from rivals.deploy.exported import Exported
from rivals.errors import RivalsError
from rivals.experiment.run_folder import RunFolder
from rivals.io.files import write_json
from rivals.io.reading import check_no_links, read_json
from rivals.model.folder_kind import folder_kind
from rivals.tickets.ticket import EXPORTS

NAME = EXPORTS


def remember(model: Path, made: Exported) -> None:
    """Write down what this export has shown, where the ticket's folder can be written.

    A model has no folders of tickets; what is in the place of one is somebody else's.
    """
    kind = folder_kind(model)
    if kind == "model":
        return
    ticket = model if kind == "ticket" else RunFolder(model).ticket(made.tasks[0])
    facts: dict[str, Any] = {"bytes": made.bytes, "parity": made.parity.to_dict()}
    if made.format == "c":
        facts["sizes"] = read_json(made.path / "card.json", "card")["sizes"]
    with contextlib.suppress(RivalsError):
        check_no_links(model, ticket, "ticket")
        write_json(ticket / NAME, {**remembered(ticket), made.format: facts})


def remembered(ticket: Path) -> dict[str, Any]:
    """By format; nothing where nothing was exported, or where the file cannot be read."""
    try:
        found = read_json(ticket / NAME, "list of exports", root=ticket)
    except RivalsError:
        return {}
    return {name: facts for name, facts in found.items() if _is_record(facts)}


def _is_record(facts: Any) -> bool:
    """Whether there are numbers where `remember` writes numbers; the file may be anybody's."""
    try:
        sizes = [size for each in facts.get("sizes", {}).values() for size in each.values()]
        accuracies = [facts["parity"][name] for name in ("before", "after")]
        numbers = [facts["bytes"], facts["parity"]["difference"], *sizes]
    except (AttributeError, TypeError, LookupError):
        return False
    numbers += [value for value in accuracies if value is not None]
    return all(type(value) in (int, float) for value in numbers)
