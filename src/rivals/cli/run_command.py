"""`rivals run`: learn all tasks of a benchmark with one method."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from rivals.cli.echo import echo_json
from rivals.cli.options import (
    DataOption,
    DeviceOption,
    JsonOption,
    LogEveryOption,
    LogOption,
    SaveOption,
    SetOption,
    ThreadsOption,
    use_data_folder,
)

EPILOG = (
    "Names, defaults and meanings of the settings for --set: `rivals info --settings METHOD` "
    "and `rivals info --settings BENCHMARK`."
)


def run(
    benchmark: Annotated[
        str,
        typer.Argument(help="A stream of tasks: a name such as digits, folder:PATH, module:name."),
    ],
    method: Annotated[str, typer.Option(help="The method, e.g. twta, er, finetune.")] = "twta",
    preset: Annotated[
        str,
        typer.Option(help="The recipe: default, small, paper …; small+wsn-8 adds a method's own."),
    ] = "default",
    set_: SetOption = None,
    on: Annotated[str, typer.Option(help="Measure accuracy on test or validation images.")] = (
        "test"
    ),
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    data: DataOption = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    save_every: SaveOption = 30.0,
    log: LogOption = None,
    log_every: LogEveryOption = 10,
    as_json: JsonOption = False,
) -> int:
    """Learn the tasks of BENCHMARK one by one. After each, measure all tasks so far."""
    from rivals.cli.run_screen import RunScreen
    from rivals.cli.stop_signals import StopRequest
    from rivals.errors import Interrupted
    from rivals.experiment import api
    from rivals.experiment.run_names import run_name
    from rivals.experiment.run_settings import parse_overrides

    use_data_folder(data)
    folder = out or Path("runs") / run_name(benchmark, method, preset, seed, on=on)
    screen, stop = RunScreen(quiet=as_json), StopRequest()
    try:
        with stop, screen.opened():
            results = api.run(
                benchmark, method, preset=preset, seed=seed, settings=parse_overrides(set_ or []),
                out=folder, resume=resume, on=on, device=device, threads=threads, log=log,
                log_every=log_every,
                callbacks=(screen,), asked_to_stop=stop.asked, save_every=save_every,
            )  # fmt: skip
    except Interrupted:
        options = {
            "--method": method, "--preset": preset, "--set": set_ or [], "--on": on,
            "--seed": seed, "--out": folder, "--data": data, "--device": device,
            "--threads": threads, "--log": log, "--log-every": log_every,
        }  # fmt: skip
        screen.message("Stopped and saved. Go on with:")
        screen.message(f"  {resume_command(benchmark, options)}")
        return 130
    if as_json:
        echo_json(results.content)
    else:
        screen.report(results.content, folder)
    return 0


def resume_command(benchmark: str, options: dict[str, object]) -> str:
    """The command that continues a run."""
    defaults = {
        "--on": "test",
        "--device": "cpu",
        "--threads": 1,
        "--data": None,
        "--log": None,
        "--log-every": 10,
    }
    words = ["rivals", "run", benchmark]
    for option, value in options.items():
        if option in defaults and value == defaults[option]:
            continue
        for each in value if isinstance(value, list) else [value]:
            words += [option, str(each)]
    return shlex.join([*words, "--resume"])
