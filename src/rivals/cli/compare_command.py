"""`rivals compare`: methods × seeds × benchmarks, one process per core."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rivals.cli.echo import echo_json
from rivals.cli.options import (
    AllowImportOption,
    DataOption,
    JsonOption,
    LogEveryOption,
    LogOption,
    SaveOption,
    SetOption,
    use_data_folder,
)
from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.experiment.grid.grid_file import PlannedRun


def compare(
    grid: Annotated[
        Path | None, typer.Argument(help="A YAML file with groups of runs, instead of the options.")
    ] = None,
    benchmarks: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Benchmarks: cifar100,pmnist; folder:PATH; module:name."),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Methods, e.g. twta,finetune; or all.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="0,1", help="Seeds: 0,1,2 or 0-2. A single 2 means seed 2 alone."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="The recipe, the same for all runs.")] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Measure accuracy on test images, or on validation images to choose settings."
        ),
    ] = None,
    set_: SetOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; each has a folder in it.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time; default: the number of cores.")
    ] = None,
    engine: Annotated[str, typer.Option(help="processes of this machine, or ray.")] = "processes",
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster; without it Ray starts here.")
    ] = None,
    data: DataOption = None,
    device: Annotated[
        str | None, typer.Option(help="Where to train: cpu (default), cuda, mps or auto.")
    ] = None,
    save_every: SaveOption = 30.0,
    log: LogOption = None,
    log_every: LogEveryOption = 10,
    allow_import: AllowImportOption = None,
    bands: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Write expected and measured values as a table."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Run every method with every seed on every benchmark. Finished runs are not repeated."""
    from rivals.cli.compare_screen import CompareScreen
    from rivals.cli.stop_signals import StopRequest
    from rivals.experiment.grid.comparison import run_grid
    from rivals.experiment.grid.expectations import as_rows, verdicts
    from rivals.experiment.grid.variants import variants
    from rivals.registry import imports_allowed

    options = {"benchmarks": benchmarks, "methods": methods, "seeds": seeds, "preset": preset}
    # What is named here may be imported; what a grid file names needs --allow-import.
    words = [word for text in (benchmarks, methods, *(set_ or [])) for word in _parts(text)]
    with imports_allowed([*(allow_import or []), *words]):
        runs = _planned(grid, {**options, "set": set_ or None, "on": on, "device": device})
        use_data_folder(data)
        folder = (out or Path("runs") / (grid.stem if grid else "compare")).absolute()
        screen, stop = CompareScreen(runs, folder, quiet=as_json), StopRequest()
        if seeds is not None:
            screen.explain_seeds(seeds)
        # Ray prints to standard output, which must hold nothing but JSON.
        quiet = redirect_stdout(sys.stderr) if as_json else nullcontext()
        with stop, screen.opened(), quiet:
            comparison = run_grid(
                runs,
                folder,
                workers,
                engine,
                address,
                save_every,
                screen,
                stop.asked,
                log,
                log_every,
            )
    outcomes = [comparison.outcomes[run] for run in runs]
    found, rows = verdicts(runs, folder), variants(outcomes)
    if bands is not None:
        _write_bands(bands, as_rows(found))
    if as_json:
        facts = [_plain(outcome, folder) for outcome in outcomes]
        whole = {
            "runs": facts,
            "variants": [row.row() for row in rows],
            "seconds": round(comparison.wall, 1),
            "busy_percent": round(comparison.busy, 1),
            "bands": as_rows(found),
        }
        echo_json(whole)
    else:
        workers_used = comparison.engine.workers
        screen.report(outcomes, comparison.wall, comparison.busy, workers_used)
        screen.variants(rows)
        screen.bands(found)
        screen.next_step(outcomes)
    if stop.asked():
        return 130
    failed = any(outcome.status == "failed" for outcome in outcomes)
    return int(failed or not all(verdict.holds for verdict in found))


def _parts(text: str | None) -> list[str]:
    """The words of `a,b` and `key=value`; a value may have an equals sign itself."""
    whole, value = text or "", (text or "").partition("=")[2]
    words = [*whole.replace("=", ",").split(","), *value.split(",")]
    return [word.strip() for word in words]


def _write_bands(path: Path, rows: list[dict[str, str]]) -> None:
    import csv
    import io

    from rivals.io.files import write_bytes

    if not rows:
        raise RivalsError(f"No finished run has an expected value, so {path} is not written.")
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_bytes(path, text.getvalue().encode())


def _planned(grid: Path | None, options: dict[str, Any]) -> list[PlannedRun]:
    """The runs of the file, or of the options; never of both."""
    from rivals.experiment.grid.grid_file import from_file, from_words

    given = [name for name, value in options.items() if value is not None]
    if grid is not None:
        _check_file(grid)
        if given:
            raise RivalsError(
                f"The file {grid} says what to run; leave out --{given[0]}, or the file."
            )
        return from_file(grid)
    if options["benchmarks"] is None:
        raise RivalsError(
            "There is nothing to run; give --benchmarks and --methods, or a grid file."
        )
    return from_words(
        options["benchmarks"], options["methods"] or "twta", options["seeds"] or "0",
        options["preset"] or "default", options["set"] or [], options["on"] or "test",
        options["device"] or "cpu",
    )  # fmt: skip


def _check_file(grid: Path) -> None:
    """A benchmark in the place of the grid file is a common mistake."""
    from rivals.streams.stream import streams

    names = str(grid).split(",")
    if not grid.exists() and all(name in streams or ":" in name for name in names):
        raise RivalsError(
            f"There is no grid file {grid}; to compare methods on this benchmark, write "
            f"rivals compare --benchmarks {grid}."
        )


def _plain(outcome: Any, folder: Path) -> dict[str, Any]:
    facts = dataclasses.asdict(outcome)
    run = {key: value for key, value in facts.pop("run").items() if key != "expect"}
    return {**run, "folder": str(folder / outcome.run.folder), **facts}
