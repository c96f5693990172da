"""`rivals check`: whether a model, a run, a ticket or an export is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.cli.options import JsonOption, SignatureOption

if TYPE_CHECKING:
    from rivals.model.checking import CheckReport

DAMAGED = 1  # exit status


def check(
    path: Annotated[Path, typer.Argument(help="A model, a run, a ticket or an exported file.")],
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
        typer.echo(json.dumps(report.to_dict()))
    else:
        show(report)
    return 0 if report.whole else DAMAGED


def show(report: CheckReport) -> None:
    """A line for each part."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    table = Table("part", "state", "")
    for each in report.parts:
        table.add_row(each.part, each.state, each.said)
    console.print(table)
    what = "whole" if report.whole else "damaged"
    console.print(f"The {report.kind} {report.path} is {what}.", soft_wrap=True)
