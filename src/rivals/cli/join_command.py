"""`rivals join`: one model with the tasks of two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import JsonOption
from rivals.cli.stop_signals import sigterm_as_exception
from rivals.errors import RivalsError


def join(
    first: Annotated[Path, typer.Argument(help="The folder of a model.")],
    second: Annotated[
        Path, typer.Argument(help="The folder of another that started from the same ancestor.")
    ],
    out: Annotated[Path, typer.Option(help="The new folder of the joined model.")],
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Rename a task of SECOND; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Make a model with the tasks of two; every ticket keeps every bit."""
    from rivals.model.joining import join as join_models

    with sigterm_as_exception():
        joined = join_models(first, second, out, dict(map(_names, rename or [])))
    if as_json:
        echo_json(joined.to_dict())
        return 0
    echo(
        f"Joined {first} and {second} as {out}: {len(joined.tasks):,} tasks, {joined.bytes:,} "
        "bytes; every ticket has the same bits as before."
    )
    if joined.same:
        echo(f"In both, and taken once: {', '.join(joined.same)}.")
    return 0


def _names(words: str) -> tuple[str, str]:
    old, equals, new = words.partition("=")
    if not (old and equals and new):
        raise RivalsError(f"--rename is '{words}', but OLD=NEW was expected, as in nuts=old-nuts.")
    return old, new
