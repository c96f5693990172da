"""`rivals drop`: take a task out of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rivals.errors import RivalsError


def drop(
    task: Annotated[str, typer.Argument(help="The task to take out.")],
    model: Annotated[Path, typer.Option(help="The model's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Take TASK out of a model, exactly; the other tasks keep every bit."""
    from rivals.model.model import Model

    try:
        gone = Model(model).drop(task)
    except RivalsError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"event": "error", "sentence": str(error)}))
        return 2
    if as_json:
        typer.echo(json.dumps(gone.to_dict()))
        return 0
    typer.echo(f"The task '{task}' is out of {model}, with {gone.freed:,} bytes.")
    if gone.heirs:
        typer.echo(
            f"What {_listed(gone.heirs)} learned from it stays there: learning began with its "
            "weights."
        )
    return 0


def _listed(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
