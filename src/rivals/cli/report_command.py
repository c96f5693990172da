"""`rivals report`: tables, plots and one page from the files of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, JSON files of runs, or folders of either.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    title: Annotated[
        str, typer.Option(help="Headline of the page.")
    ] = "Continual learning, compared",
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON.")
    ] = False,
) -> int:
    """Write tables (Markdown, CSV, LaTeX), plots and one HTML page about RUNS; torch not needed."""
    from rivals.experiment.report.report_runs import read
    from rivals.experiment.report.run_files import by_name, write_runs
    from rivals.experiment.report.write import write

    found = read(runs, finished_only)
    kept = by_name(found) if with_runs else {}  # refused before anything is written
    files = write(found, out, title) + write_runs(kept, out / "runs")
    if as_json:
        facts = {"runs": [str(run.path) for run in found], "files": [str(file) for file in files]}
        typer.echo(json.dumps(facts))
    else:
        typer.echo(f"{len(found)} runs in {len(files)} files; open {files[0]}.")
    return 0
