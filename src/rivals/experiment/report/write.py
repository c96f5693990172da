"""A report, written: tables as files, plots as files, and the page that holds them all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rivals.errors import RivalsError
from rivals.experiment.report import accuracy_plots, cost_plots, learning_plots, winner_plots
from rivals.experiment.report.figures import Figure
from rivals.experiment.report.formats import comma_separated, latex, markdown
from rivals.experiment.report.groups import Section
from rivals.experiment.report.page import Chapter, page
from rivals.experiment.report.paired import paired
from rivals.experiment.report.report_runs import FinishedRun
from rivals.experiment.report.sections import sections
from rivals.experiment.report.tables import OVERVIEWS, Table, accuracy, blocks, bti, cost, overview
from rivals.io.files import make_folder, write_bytes

TABLES: dict[str, Callable[[Section], Table]] = {
    "accuracy": accuracy,
    "paired": paired,
    "cost": cost,
    "bti": bti,
    "blocks": blocks,
}
PLOTS: tuple[Callable[[Section], Figure | None], ...] = (
    accuracy_plots.over_tasks,
    accuracy_plots.forgotten,
    learning_plots.within_a_task,
    learning_plots.every_task,
    cost_plots.against_bytes,
    cost_plots.against_flops,
    accuracy_plots.matrix,
    winner_plots.winner_map,
    winner_plots.overlap,
    winner_plots.room,
)

MOST_CURVES = 8  # runs at work whose curves are shown


def write(
    runs: list[FinishedRun], out: Path, title: str, running: Table | None = None,
    working: Sequence[FinishedRun] = (), live: bool = False,
) -> list[Path]:  # fmt: skip
    """Everything about these runs into a folder; the files that were written, the page first.

    Of runs that are still `working` the page shows the table `running` and their curves; a `live`
    page asks for itself again.
    """
    _usable(out)
    found = sections(runs)
    overviews = [overview(found, name) for name in OVERVIEWS] if found else []
    chapters = [_chapter(section) for section in found]
    curves = [
        figure
        for number, run in enumerate(working[:MOST_CURVES])
        if (figure := learning_plots.task_curves(run, f"running-{number}")) is not None
    ]
    now = running if working else None
    files = {"report.html": page(overviews, chapters, title, now, curves, live)}
    for table in overviews:
        files |= _files(table.name, [("", "", table)])
    for name in TABLES:
        rows = [
            (chapter.section.title, chapter.section.subset, table)
            for chapter in chapters
            for table in chapter.tables
            if table.name == name
        ]
        if rows:
            files |= _files(name, rows)
    for chapter in chapters:
        files |= {f"plots/{figure.name}.svg": figure.svg + "\n" for figure in chapter.figures}
    make_folder(out / "plots")
    for name, text in files.items():
        write_bytes(out / name, text.encode())
    return [out / name for name in files]


def _chapter(section: Section) -> Chapter:
    tables = [table for build in TABLES.values() if (table := build(section)).rows]
    figures = [figure for plot in PLOTS if (figure := plot(section)) is not None]
    return Chapter(section, tables, figures)


def _files(name: str, rows: list[tuple[str, str, Table]]) -> dict[str, str]:
    """One table in three formats."""
    titled = [(title, table) for title, _, table in rows]
    return {
        f"{name}.md": markdown(titled),
        f"{name}.csv": comma_separated(rows),
        f"{name}.tex": latex(titled, f"tab:{name}"),
    }


def _usable(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise RivalsError(f"{out} is a file; --out needs a folder.")
    make_folder(out)
    if not os.access(out, os.W_OK):
        raise RivalsError(f"{out} cannot be written to; choose another --out.")
