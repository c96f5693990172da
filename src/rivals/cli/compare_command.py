"""`rivals compare`: methods × seeds × benchmarks, as many runs at a time as there are cores."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rivals.errors import RivalsError, unknown

if TYPE_CHECKING:
    from rivals.experiment.grid.engine import Engine
    from rivals.experiment.grid.grid_file import Planned

ENGINES = ("processes", "ray")


def compare(
    grid: Annotated[
        Path | None, typer.Argument(help="A YAML file with groups of runs, instead of the options.")
    ] = None,
    benchmarks: Annotated[
        str | None, typer.Option(metavar="A,B", help="Streams, e.g. cifar100,pmnist.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Methods, e.g. twta,finetune; or all.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1", help="Seeds, e.g. 0,1,2 or 0-2.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="The recipe of all of them.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs, one folder each.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time; as many as there are cores.")
    ] = None,
    engine: Annotated[str, typer.Option(help="processes of this machine, or ray.")] = "processes",
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster; without it Ray starts here.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    save_every: Annotated[
        float, typer.Option(help="Seconds between two checkpoints inside a task.")
    ] = 30.0,
    bands: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Write what was expected, and reached, as a table."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcomes as JSON.")] = False,
) -> int:
    """Run a grid of methods, seeds and benchmarks; finished runs are kept, cut ones go on."""
    from rivals.cli.compare_screen import CompareScreen
    from rivals.cli.run_command import StopSign
    from rivals.experiment.grid.comparison import Comparison
    from rivals.experiment.grid.expectations import as_rows, verdicts

    options = {"benchmarks": benchmarks, "methods": methods, "seeds": seeds, "preset": preset}
    runs = _planned(grid, {**options, "set": set_ or None})
    if data is not None:
        if not data.is_dir():
            raise RivalsError(f"{data} is no folder; --data names the folder of the data sets.")
        os.environ["RIVALS_DATA"] = str(data.resolve())
    if not save_every >= 0:
        raise RivalsError(f"--save-every is {save_every}, but must not be negative.")
    folder = (out or Path("runs") / (grid.stem if grid else "compare")).absolute()
    _writable(folder)
    screen, stop = CompareScreen(runs, folder, quiet=as_json), StopSign()
    chosen = _engine(engine, address, workers, len(runs))
    comparison = Comparison(runs, folder, chosen, screen, save_every, stop.seen)
    try:
        # Ray speaks on standard output; JSON has it for itself.
        quiet = redirect_stdout(sys.stderr) if as_json else nullcontext()
        with stop, screen.opened(), quiet:
            outcomes = comparison.go()
    finally:
        chosen.close()
    found = verdicts(runs, folder)
    if bands is not None:
        _write_bands(bands, as_rows(found))
    if as_json:
        facts = [_plain(outcome, folder) for outcome in outcomes]
        seconds, busy = round(comparison.wall, 1), round(comparison.busy, 1)
        whole = {"runs": facts, "seconds": seconds, "busy_percent": busy, "bands": as_rows(found)}
        typer.echo(json.dumps(whole))
    else:
        screen.report(outcomes, comparison.wall, comparison.busy, chosen.workers)
        screen.bands(found)
    if stop.seen():
        return 130
    failed = any(outcome.how == "failed" for outcome in outcomes)
    return int(failed or not all(verdict.holds for verdict in found))


def _write_bands(path: Path, rows: list[dict[str, str]]) -> None:
    import csv
    import io

    from rivals.io.files import write_bytes

    if not rows:
        raise RivalsError(f"Nothing finished that something is expected of, so {path} is not made.")
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_bytes(path, text.getvalue().encode())


def _planned(grid: Path | None, options: dict[str, Any]) -> list[Planned]:
    """The runs of the file, or of the options; never of both."""
    from rivals.experiment.grid.grid_file import from_file, from_words

    given = [name for name, value in options.items() if value is not None]
    if grid is not None:
        if given:
            raise RivalsError(f"{grid} says what to run; leave out --{given[0]}, or the file.")
        return from_file(grid)
    if options["benchmarks"] is None:
        raise RivalsError("Nothing is named to run; give --benchmarks and --methods, or a file.")
    return from_words(
        options["benchmarks"], options["methods"] or "twta", options["seeds"] or "0",
        options["preset"] or "default", options["set"] or [],
    )  # fmt: skip


def _writable(folder: Path) -> None:
    from rivals.io.files import make_folder

    if folder.exists() and not folder.is_dir():
        raise RivalsError(f"{folder} is a file; --out needs a folder.")
    if (folder / "config.yaml").exists():
        raise RivalsError(f"{folder} is the folder of a run; choose another --out for many.")
    make_folder(folder)
    if not os.access(folder, os.W_OK):
        raise RivalsError(f"{folder} cannot be written to; choose another --out.")


def _engine(name: str, address: str | None, workers: int | None, runs: int) -> Engine:
    from rivals.experiment.grid.process_engine import Processes, cores

    if workers is not None and workers < 1:
        raise RivalsError(f"--workers is {workers}, but must be at least 1.")
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    if name == "ray":
        from rivals.experiment.grid.ray_engine import RayCluster

        return RayCluster(address, workers)
    if address is not None:
        raise RivalsError("--address is of a Ray cluster; add --engine ray.")
    return Processes(min(workers or cores(), runs))


def _plain(outcome: Any, folder: Path) -> dict[str, Any]:
    facts = dataclasses.asdict(outcome)
    run = {key: value for key, value in facts.pop("run").items() if key != "expect"}
    return {**run, "folder": str(folder / outcome.run.folder), **facts}
