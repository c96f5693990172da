"""`rivals ancestor make`: what was learned becomes an ancestor that new models start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import AllowImportOption, DataOption, JsonOption, use_data_folder

app = typer.Typer(help="Make a network for new models to start from.", no_args_is_help=True)


@app.callback()
def ancestors() -> None:
    """Make a network for new models to start from."""


@app.command("make")
def make(
    source: Annotated[Path, typer.Argument(help="The folder of a model, a run or a ticket.")],
    out: Annotated[Path, typer.Option(help="Folder of the ancestor.")],
    task: Annotated[
        str | None, typer.Option(help="The task whose network it is; default: the last one.")
    ] = None,
    data: DataOption = None,
    allow_import: AllowImportOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make an ancestor of a task of SOURCE, for `rivals learn --ancestor`."""
    from rivals.ancestors.making import make_ancestor
    from rivals.registry import imports_allowed

    use_data_folder(data)
    with imports_allowed(allow_import or []):
        made = make_ancestor(source, out, task)
    if as_json:
        echo_json(made.to_dict())
        return 0
    card = made.card
    widths = "-".join(map(str, card["widths"]))
    echo(
        f"Made the ancestor {made.folder} of the task '{card['task']}': {card['architecture']} "
        f"{widths}, {card['weights']:,} weights, {made.bytes:,} bytes."
    )
    echo(f"Covariance of its features: {card['covariance']}.")
    echo(f"Start a new model from it: rivals learn FOLDER --model NEW --ancestor {made.folder}")
    return 0
