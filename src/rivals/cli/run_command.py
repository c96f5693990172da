"""`rivals run`: a whole stream with one method, from the first task to the results."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from rivals.errors import RivalsError


def run(
    benchmark: Annotated[
        str, typer.Argument(help="A stream of tasks: digits, folder:PATH, module:name.")
    ],
    method: Annotated[str, typer.Option(help="Who learns, e.g. twta, finetune, joint.")] = "twta",
    preset: Annotated[
        str, typer.Option(help="The recipe: default, small, paper; with a point: small+wsn-8.")
    ] = "default",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
    ] = None,
    on: Annotated[
        str, typer.Option(help="Images to measure accuracy on: test, or validation.")
    ] = "test",
    seed: Annotated[int, typer.Option(help="All randomness comes from it.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where --out stopped.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    save_every: Annotated[
        float, typer.Option(help="Seconds between two checkpoints inside a task.")
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> int:
    """Learn the tasks of BENCHMARK one after the other, and measure every task again after each."""
    import os

    from rivals.cli.screen import Screen
    from rivals.errors import Interrupted
    from rivals.experiment.run_names import run_name
    from rivals.experiment.run_settings import parse_overrides, resolve
    from rivals.experiment.start import prepare

    if data is not None:
        if not data.is_dir():
            raise RivalsError(f"{data} is no folder; --data names the folder of the data sets.")
        os.environ["RIVALS_DATA"] = str(data)
    if not save_every >= 0:
        raise RivalsError(f"--save-every is {save_every}, but must not be negative.")
    settings = resolve(benchmark, method, preset, seed, parse_overrides(set_ or []), threads)
    folder = out or Path("runs") / run_name(benchmark, method, preset, seed, on=on)
    screen = Screen(quiet=as_json)
    stop = StopSign()
    job = prepare(settings, folder, resume, (screen,), stop.seen, save_every, on)
    try:
        with screen.opened(job), stop:
            results = job.go()
    except Interrupted:
        again = _again(benchmark, method, preset, set_ or [], seed, folder, data, threads, on)
        screen.say(f"Stopped and saved. Go on with:\n  {again}")
        return 130
    if as_json:
        typer.echo(json.dumps(results.content))
    else:
        screen.report(results.content, folder)
    return 0


class StopSign:
    """Ctrl-C and SIGTERM let the present step finish; a second Ctrl-C stops at once."""

    def __init__(self) -> None:
        self.asked = False
        self.before: dict[int, Any] = {}

    def seen(self) -> bool:
        return self.asked

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> StopSign:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _again(
    benchmark: str, method: str, preset: str, changes: list[str], seed: int, out: Path,
    data: Path | None, threads: int, on: str,
) -> str:  # fmt: skip
    """The command that resumes this run."""
    import shlex

    words = ["rivals", "run", benchmark, "--method", method, "--preset", preset]
    for change in changes:
        words += ["--set", change]
    if on != "test":
        words += ["--on", on]
    words += ["--seed", str(seed), "--out", str(out), "--resume"]
    if data is not None:
        words += ["--data", str(data)]
    if threads != 1:
        words += ["--threads", str(threads)]
    return shlex.join(words)
