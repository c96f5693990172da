"""`rivals explain`: which part of a picture decided for its class, and which classes are near."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import (
    JsonOption,
    SignatureOption,
    ThreadsOption,
    check_threads,
    check_writable,
)
from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.model.explaining import Explanation

MOST_CLASSES = 5  # that are listed


def explain(
    picture: Annotated[Path, typer.Argument(help="A picture.")],
    model: Annotated[Path, typer.Option(help="Folder of the model.")],
    task: Annotated[str | None, typer.Option(help="The task; default: the model finds it.")] = None,
    class_: Annotated[
        str | None,
        typer.Option("--class", metavar="C", help="Explain this class, not the one answered."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Save the picture with the heat map over it."),
    ] = None,
    require_signature: SignatureOption = None,
    threads: ThreadsOption = 1,
    as_json: JsonOption = False,
) -> int:
    """Show which part of PICTURE decided for its class, and which classes are near."""
    check_threads(threads)
    check_writable(out, "--out", (".png",))
    if out is not None and picture.exists() and out.exists() and os.path.samefile(picture, out):
        raise RivalsError(f"--out is {out}, the picture itself; choose another name.")
    import torch

    from rivals.model.model import Model

    torch.set_num_threads(threads)
    opened = Model(model, require_signature=require_signature)
    found = opened.explain(picture, task, label=class_)
    if out is not None:
        found.save(out)
    if as_json:
        echo_json(found.to_dict())
    else:
        _show(found, str(picture), len(opened.tasks) > 1)
    if out is not None:
        echo(f"Saved the heat map as {out}.", err=as_json)
    return 0


def _show(found: Explanation, picture: str, several: bool) -> None:
    from rich.table import Table

    from rivals.cli.terminal import Terminal

    where = f"  task {found.answer.task}" if several else ""
    echo(f"{picture}: {found.answer.label}  {100 * found.answer.confidence:.1f} %{where}")
    echo(str(found))
    table = Table("nearest class")
    if several:
        table.add_column("task")
    table.add_column("distance", justify="right")
    table.add_column("held-out farther", justify="right")
    for each in found.nearest[:MOST_CLASSES]:
        numbers = f"{each.distance:.2f}", f"{100 * each.farther:.0f} %"
        table.add_row(each.label, *([each.task] if several else []), *numbers)
    Terminal().print(table)
