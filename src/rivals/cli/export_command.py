"""`rivals export`: a ticket or a whole model as a file for a device."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import AllowImportOption, DataOption, JsonOption, use_data_folder
from rivals.cli.stop_signals import sigterm_as_exception
from rivals.io.reading import printable

if TYPE_CHECKING:
    from rivals.deploy.exported import Exported
    from rivals.deploy.teachable.teachable_export import ExportedTeachable

LINE = 10_000  # characters of a path, at most
TEACHABLE_CLASSES = 20  # that the sizes of a device are of


def export(
    out: Annotated[Path, typer.Argument(help="The file or folder to write, e.g. ticket.onnx.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="onnx, ort, onnx-int8, litert, executorch, c or web, a page for browsers; "
            "default: from the ending of OUT.",
        ),
    ] = None,
    model: Annotated[Path, typer.Option(help="The folder of a model, a run or a ticket.")] = Path(
        "."
    ),
    task: Annotated[str | None, typer.Option(help="The task to export.")] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Pictures for the comparison, in a subfolder for each class."
        ),
    ] = None,
    float_input: Annotated[
        bool, typer.Option("--float-input", help="The input is normalised floats, not pixel bytes.")
    ] = False,
    all_tasks: Annotated[
        bool,
        typer.Option("--all-tasks", help="All tickets in one file, which also finds the task."),
    ] = False,
    runtime: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|TGZ",
            help="For web: the package onnxruntime-web; default: from the user's cache, else npm.",
        ),
    ] = None,
    teachable: Annotated[
        bool,
        typer.Option("--teachable", help="For c: a device that learns and forgets by itself."),
    ] = False,
    ancestor: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER",
            help="With --teachable: tiny, small or your own, in place of a model.",
        ),
    ] = None,
    data: DataOption = None,
    allow_import: AllowImportOption = None,
    as_json: JsonOption = False,
) -> int:
    """Write a ticket as a file for a device. It is kept only if its answers are the same."""
    from rivals.deploy.exporting import check_teachable, export_from
    from rivals.registry import imports_allowed

    use_data_folder(data)
    check_teachable(
        teachable, to, {
            "--task": task, "--float-input": float_input, "--all-tasks": all_tasks,
            "--runtime": runtime,
        }, ancestor,
    )  # fmt: skip
    with sigterm_as_exception(), imports_allowed(allow_import or []):
        if teachable:
            from rivals.deploy.teachable.teachable_export import export_teachable

            device = export_teachable(out, model, ancestor, images)
            echo_json(device.to_dict()) if as_json else show_device(device)
            return 0
        exported = export_from(model, out, to, task, images, float_input, all_tasks, runtime)
    if as_json:
        echo_json(exported.to_dict())
    else:
        show(exported)
    return 0


def show_device(device: ExportedTeachable) -> None:
    """The folder, what it knows, and what it takes."""
    known = [f"{name} ({task})" for task, name in device.classes]
    shape = " × ".join(map(str, device.input_shape))
    echo(
        f"Made {printable(str(device.path), LINE)}: the ancestor '{printable(device.ancestor)}', "
        f"pictures of {shape} bytes, {len(known) or 'no'} class{'es' * (len(known) != 1)}"
        f"{': ' if known else ''}{printable(', '.join(known), LINE)}."
    )
    if device.left_out:
        echo(
            f"Left out, as they are no closed form: {printable(', '.join(device.left_out), LINE)}."
        )
    if device.sizes:
        echo(
            f"On a Cortex-M4 with {TEACHABLE_CLASSES} classes: {device.sizes['flash']:,} bytes of "
            f"flash, {device.sizes['ram']:,} bytes of memory."
        )
    echo(
        f"The features of {device.compared} pictures are those of Python, bit for bit; ranges from "
        f"{printable(device.calibrated, LINE)}."
    )


def show(exported: Exported) -> None:
    """The file, its size, and how its answers compare with the ticket's."""
    from rich.table import Table

    from rivals.cli.terminal import Terminal

    parity = exported.parity
    table = Table(show_header=False)
    table.add_row("file", printable(str(exported.path), LINE), "")
    table.add_row("bytes", f"{exported.bytes:,}", "")
    if exported.int8 is not None:
        table.add_row("as int8", f"{100 * exported.int8:.1f} %", "of the weights")
    one = len(exported.tasks) == 1
    table.add_row("task" if one else "tasks", printable(", ".join(exported.tasks)), "")
    table.add_row("largest difference", f"{parity.difference:.1e}", "in probability")
    same = f"{100 * parity.agreement:.2f} %"
    table.add_row(
        "same class" if one else "same task and class", same, f"of {parity.images:,} images"
    )
    if parity.before is not None and parity.after is not None:
        images = f"of {parity.held:,} test images{'' if one else ', task unknown'}"
        table.add_row("accuracy before", f"{parity.before:.1f} %", images)
        table.add_row("accuracy after", f"{parity.after:.1f} %", images)
    console = Terminal()
    console.print(table)
    if exported.format == "web":
        place = printable(str(exported.path), LINE)
        opened = f"python -m http.server --directory {shlex.quote(place)}"
        console.print(f"Open it: {opened}, then http://localhost:8000", soft_wrap=True)
    console.print(f"Compared on {printable(parity.source, LINE)}.", soft_wrap=True)
