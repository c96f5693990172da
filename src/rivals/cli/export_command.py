"""`rivals export`: a ticket, or a whole model, as a file for a runtime, checked against it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.deploy.exported import Exported


def export(
    out: Annotated[Path, typer.Argument(help="Where it goes, e.g. ticket.onnx.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="onnx, ort, onnx-int8, litert, executorch or c; default: by the ending of OUT.",
        ),
    ] = None,
    model: Annotated[Path, typer.Option(help="The folder of a model, a run or a ticket.")] = Path(
        "."
    ),
    task: Annotated[str | None, typer.Option(help="The task whose ticket it is.")] = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Pictures to compare with, in a subfolder for a class."),
    ] = None,
    float_input: Annotated[
        bool, typer.Option("--float-input", help="Prepared numbers go in, not bytes of pixels.")
    ] = False,
    all_tasks: Annotated[
        bool, typer.Option("--all-tasks", help="Every ticket and the rule that names the task.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Write a ticket for a runtime, run it there, compare, and keep it if it answers the same."""
    from rivals.deploy.exporting import export_from

    if data is not None:
        if not data.is_dir():
            raise RivalsError(f"{data} is no folder; --data names the folder of the data sets.")
        os.environ["RIVALS_DATA"] = str(data)
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        made = export_from(model, out, to, task, images, float_input, all_tasks)
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        typer.echo(json.dumps(made.to_dict()))
    else:
        show(made)
    return 0


def _stop(number: int, frame: object) -> None:
    """Leave by an exception, so that what is half-made is removed."""
    raise KeyboardInterrupt


def show(made: Exported) -> None:
    """The file, its bytes, and how it compares."""
    from rich.console import Console
    from rich.table import Table

    parity = made.parity
    table = Table(show_header=False)
    table.add_row("file", str(made.path), "")
    table.add_row("bytes", f"{made.bytes:,}", "")
    if made.int8 is not None:
        table.add_row("in 8 bits", f"{100 * made.int8:.1f} %", "of the weights")
    what = "task" if len(made.tasks) == 1 else "tasks"
    table.add_row(what, ", ".join(made.tasks), "")
    table.add_row("largest difference", f"{parity.difference:.1e}", "of a probability")
    same = f"{100 * parity.agreement:.2f} %"
    table.add_row("same class" if what == "task" else "same task and class", same,
                  f"of {parity.images:,} images")  # fmt: skip
    if parity.before is not None and parity.after is not None:
        known = "" if what == "task" else ", task inferred"
        held = f"of {parity.held:,} test images{known}"
        table.add_row("accuracy before", f"{parity.before:.1f} %", held)
        table.add_row("accuracy after", f"{parity.after:.1f} %", held)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    console.print(f"Compared on {parity.source}.", soft_wrap=True)
