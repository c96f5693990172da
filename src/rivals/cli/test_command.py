"""`rivals test`: the accuracy of a model on labelled pictures."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.given_data import given_data
from rivals.cli.options import (
    JsonOption,
    ThreadsOption,
    check_formats,
    check_threads,
    check_writable,
)
from rivals.io.reading import printable

if TYPE_CHECKING:
    from rich.table import Table

    from rivals.model.testing import Mistake, TestReport

MOST_CLASSES = 12  # of a confusion matrix on the terminal
MOST_FILES = 10  # skipped files that are listed
WORST = 5  # mistakes that are listed
PLOT_ENDINGS = (".png", ".svg", ".pdf")
CSV_FIELDS = ("class", "pictures", "right", "accuracy", "low", "high")


def measure_accuracy(
    folder: Annotated[
        str, typer.Argument(help="A folder with a subfolder for each class, or module:name.")
    ],
    model: Annotated[Path, typer.Option(help="Folder of the model.")],
    task: Annotated[
        str | None, typer.Option(help="The task; default: the model finds it for each picture.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Save the confusion matrix as a picture."),
    ] = None,
    mistakes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png", help="Save the pictures with the most confident wrong answers."
        ),
    ] = None,
    threads: ThreadsOption = 1,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one line of CSV per class.")] = False,
) -> int:
    """Measure accuracy on the pictures in FOLDER. They should not have been learned from."""
    check_formats(as_json, as_csv)
    check_threads(threads)
    check_writable(plot, "--plot", PLOT_ENDINGS)
    check_writable(mistakes, "--mistakes", (".png",))
    import torch

    from rivals.model.model import Model

    torch.set_num_threads(threads)
    report = Model(model).test(given_data(folder), task)
    if as_json:
        echo_json(report.to_dict())
    elif as_csv:
        _print_csv(report)
    else:
        _show(report)
    if plot is not None:
        report.plot(str(plot))
        echo(f"Saved the confusion matrix as {plot}.", err=as_json or as_csv)
    if mistakes is not None:
        saved = report.save_mistakes(str(mistakes))
        told = f"Saved {saved} mistakes as {mistakes}." if saved else "No mistakes to save."
        echo(told, err=as_json or as_csv)
    return 0


def _print_csv(report: TestReport) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    for each in report.per_class:
        low, high = each.interval
        numbers = (f"{value:.4f}" for value in (each.accuracy, low, high))
        writer.writerow((printable(each.label), each.images, each.right, *numbers))


def _show(report: TestReport) -> None:
    """The table of classes, the confusion matrix, the skipped files, and the summary."""
    from rivals.cli.terminal import Terminal

    console = Terminal()
    console.print(class_table(report))
    if len(report.labels) <= MOST_CLASSES:
        console.print("Confusion matrix: true classes in rows, predicted classes in columns.")
        console.print(confusion_table(report))
    if report.wrong:
        console.print("Most confident mistakes:")
        for each in report.mistakes(WORST):
            console.print(f"  {mistake_line(each)}", soft_wrap=True)
    if report.left_out:
        console.print(f"Skipped {len(report.left_out):,} files that are no usable pictures:")
        for path in report.left_out[:MOST_FILES]:
            console.print(f"  {path}", soft_wrap=True)
        if len(report.left_out) > MOST_FILES:
            console.print(f"  and {len(report.left_out) - MOST_FILES:,} more (--json lists all)")
    console.print(summary(report), soft_wrap=True)


def class_table(report: TestReport) -> Table:
    """How many pictures of each class were classified correctly."""
    from rich.table import Table

    table = Table("class")
    for head in ("pictures", "right", "accuracy %", "95 % interval"):
        table.add_column(head, justify="right")
    for each in report.per_class:
        low, high = each.interval
        table.add_row(
            each.label, f"{each.images:,}", f"{each.right:,}", f"{each.accuracy:.1f}",
            f"{low:.1f} to {high:.1f}",
        )  # fmt: skip
    return table


def confusion_table(report: TestReport) -> Table:
    """Rows are true classes, columns are predicted ones."""
    from rivals.cli.matrix_table import matrix_table

    cells = [[str(cell) if cell else "·" for cell in row] for row in report.confusion]
    return matrix_table("", report.labels, cells)


def mistake_line(mistake: Mistake) -> str:
    """For example: held/cat/7.jpg is cat, answered dog (98.2 %)"""
    found = mistake.picture
    picture = found if isinstance(found, str) else f"number {found}"
    return (
        f"{picture} is {mistake.truth}, answered {mistake.answer} "
        f"({100 * mistake.confidence:.1f} %)"
    )


def summary(report: TestReport) -> str:
    """For example: 75.0 % (64.5 to 83.2) of 80 pictures, task unknown; 81.3 % with the task given.

    The parentheses hold the 95 % interval.
    """
    low, high = report.interval
    task = f"task {report.task}" if report.task else "task unknown"
    given = report.given_task
    known = "" if given is None else f"; {given:.1f} % with the task given"
    return (
        f"{report.accuracy:.1f} % ({low:.1f} to {high:.1f}) of {report.images:,} pictures, "
        f"{task}{known}"
    )
