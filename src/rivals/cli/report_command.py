"""`rivals report`: tables, plots and one page from runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import JsonOption
from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.experiment.report.report_runs import FinishedRun, RunFilter


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
    benchmark: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only runs of these benchmarks.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only runs of these methods.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only runs with these presets.")
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Write the report again when a run advances, until all are finished or Ctrl-C.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Write tables, plots and one HTML page from RUNS. Tables are Markdown, CSV and LaTeX."""
    from rivals.experiment.report.report_runs import RunFilter, read
    from rivals.experiment.report.run_files import by_name, write_runs
    from rivals.experiment.report.write import write

    only = RunFilter.of(benchmark, method, preset)
    if live:
        if finished_only or with_runs or as_json:
            raise RivalsError(
                "--follow shows runs on their way; leave out --finished-only, --with-runs and "
                "--json."
            )
        return _follow(runs, out, title, only)
    found = read(runs, finished_only, only)
    kept = by_name(found) if with_runs else {}  # refused before anything is written
    files = write(found, out, title) + write_runs(kept, out / "runs")
    if as_json:
        facts = {"runs": [str(run.path) for run in found], "files": [str(file) for file in files]}
        echo_json(facts)
    else:
        echo(f"Wrote {len(files)} files from {len(found)} runs; open {files[0]}.")
    return 0


def _follow(runs: list[Path], out: Path, title: str, only: RunFilter) -> int:
    """A line whenever another run is finished, and one at the end."""
    from rivals.cli.stop_signals import StopRequest
    from rivals.experiment.report.live import follow

    page, said = out / "report.html", ""

    def written(found: list[FinishedRun]) -> None:
        nonlocal said
        done = sum(run.complete for run in found)
        line = f"{done} of {len(found)} runs that are there are finished; {page} follows them."
        if line != said:
            echo(line)
        said = line

    with StopRequest() as stop:
        found = follow(runs, out, title, only, stop.asked, written)
    open_ = [run.name for run in found if not run.complete]
    if open_:
        echo(f"Not finished: {', '.join(open_[:5])}{' …' if len(open_) > 5 else ''}.")
    echo(f"The report of {len(found)} runs is {page}.")
    return 130 if stop.asked() else 0
