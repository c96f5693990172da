"""`rivals report`: tables, plots and one page from runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import JsonOption


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, JSON files of runs, or folders of either.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Continual learning, compared",
    finished_only: Annotated[
        bool, typer.Option("--finished-only", help="Leave out runs that are not finished.")
    ] = False,
    with_runs: Annotated[
        bool,
        typer.Option(
            "--with-runs",
            help="Also write each run as one JSON file, OUT/runs/NAME.json, without weights.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Write tables, plots and one HTML page from RUNS. Tables are Markdown, CSV and LaTeX."""
    from rivals.experiment.report.report_runs import read
    from rivals.experiment.report.run_files import by_name, write_runs
    from rivals.experiment.report.write import write

    found = read(runs, finished_only)
    kept = by_name(found) if with_runs else {}  # refused before anything is written
    files = write(found, out, title) + write_runs(kept, out / "runs")
    if as_json:
        facts = {"runs": [str(run.path) for run in found], "files": [str(file) for file in files]}
        echo_json(facts)
    else:
        echo(f"Wrote {len(files)} files from {len(found)} runs; open {files[0]}.")
    return 0
