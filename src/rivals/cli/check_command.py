"""`rivals check`: whether a model, a run, a ticket or an export is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.cli.echo import echo_json
from rivals.cli.options import JsonOption, SignatureOption

if TYPE_CHECKING:
    from rivals.model.checking import CheckReport

DAMAGED = 1  # exit status
MOST_WHOLE = 12  # parts that are listed


def check(
    path: Annotated[
        Path,
        typer.Argument(help="A model, packed or not, a run, a ticket, an ancestor or an export."),
    ],
    since: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="Prove that no ticket of that time was changed; `rivals info` shows the hash.",
        ),
    ] = None,
    require_signature: SignatureOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check that PATH is whole. Exit status 0: whole, 1: damaged, 2: nothing to check."""
    from rivals.model.checking import check as check_path

    report = check_path(path, since, require_signature)
    if as_json:
        echo_json(report.to_dict())
    else:
        show(report)
    return 0 if report.whole else DAMAGED


def show(report: CheckReport) -> None:
    """What is not whole, and some of what is."""
    from rich.table import Table

    from rivals.cli.terminal import Terminal

    console = Terminal()
    table = Table("part", "state", "")
    left = sum(each.state == "whole" for each in report.parts) - MOST_WHOLE
    shown = 0
    for each in report.parts:
        shown += each.state == "whole"
        if each.state != "whole" or shown <= MOST_WHOLE:
            table.add_row(each.part, each.state, each.said)
    if left > 0:
        table.add_row(f"{left:,} more", "whole", "--json lists all")
    console.print(table)
    what = "whole" if report.whole else "damaged"
    console.print(f"The {report.kind} {report.path} is {what}.", soft_wrap=True)
