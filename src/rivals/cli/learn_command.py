"""`rivals learn` and `rivals drop`: add a task to a model, or delete one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.given_data import given_data, given_name
from rivals.cli.options import (
    DeviceOption,
    JsonOption,
    LogEveryOption,
    LogOption,
    ThreadsOption,
    check_threads,
)
from rivals.errors import RivalsError

STARTED = time.monotonic()  # --minutes includes the start of the program


def learn(
    folder: Annotated[
        str,
        typer.Argument(
            help="A folder with a subfolder for each class, of pictures or of WAV files; or "
            "module:name, a dataset in Python."
        ),
    ],
    model: Annotated[Path, typer.Option(help="Folder of the model; created if it is missing.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the task; default: the name of the folder.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train a known task further with more pictures.")
    ] = False,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Replace a known task: learn it from these pictures alone."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a folder with unreadable files.")
    ] = False,
    minutes: Annotated[float | None, typer.Option(help="Time limit.")] = None,
    ram: Annotated[float | None, typer.Option(help="Memory limit in MB.")] = None,
    network: Annotated[
        str | None,
        typer.Option(help="New model only: conv-small, conv-residual, lenet, mlp or resnet-small."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="New model only: width and height of its input in pixels.")
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", help="New model only: without colours.")] = False,
    ancestor: Annotated[
        str | None,
        typer.Option(
            help="New model only: what to start from: small (default), tiny, none, a folder, or "
            "timm:NAME[=WEIGHTS]."
        ),
    ] = None,
    new: Annotated[
        str, typer.Option(help="Share of new units, 0 to 1; auto: the pictures decide.")
    ] = "auto",
    seed: Annotated[
        int | None, typer.Option(help="New model only: seed of all randomness; default 0.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the pictures; default: by their number.")
    ] = None,
    augment: Annotated[
        str | None, typer.Option(help="Augmentation: none, flip, crop or crop-flip.")
    ] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    log: LogOption = None,
    log_every: LogEveryOption = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON for each event.")
    ] = False,
) -> int:
    """Learn the pictures in FOLDER as a new task. Earlier tasks do not change."""
    from rivals.cli.stop_signals import StopRequest

    screen, stop = _screen(model, as_json), StopRequest()
    try:
        with stop, screen:
            check_threads(threads)
            import torch

            from rivals.errors import Interrupted
            from rivals.model.model import Model

            torch.set_num_threads(threads)
            try:
                Model(model, device=device).learn(
                    given_data(folder), given_name(folder, name), again=again, anew=anew,
                    strict=strict, minutes=minutes, ram=ram,
                    network=network, size=size, grey=grey or None, seed=seed, ancestor=ancestor,
                    new=new, epochs=epochs, augmentation=augment, listener=screen,
                    asked_to_stop=stop.asked, started=STARTED, log=log, log_every=log_every,
                )  # fmt: skip
            except Interrupted:
                screen({"event": "stopped"})
                return 130
    except RivalsError as error:
        return _error(error, as_json)
    return 0


def drop(
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    model: Annotated[Path, typer.Option(help="Folder of the model.")],
    as_json: JsonOption = False,
) -> int:
    """Delete TASK from a model. The other tasks do not change."""
    from rivals.model.model import Model

    try:
        dropped = Model(model).drop(task)
    except RivalsError as error:
        return _error(error, as_json)
    if as_json:
        echo_json(dropped.to_dict())
        return 0
    echo(f"Deleted the task '{task}' from {model}: {dropped.freed:,} bytes less.")
    if dropped.heirs:
        names = [f"'{name}'" for name in dropped.heirs]
        listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
        echo(f"What {listed} learned from it stays there: training started with its weights.")
    if dropped.unsigned:
        echo(f"The signature was removed: {model} is no longer what was signed.")
    return 0


class JsonLines:
    """Prints every event as one line of JSON."""

    def __call__(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _screen(model: Path, as_json: bool) -> Any:
    """Where the events of learning go; a program that reads JSON needs no progress bar."""
    if as_json:
        return JsonLines()
    from rivals.cli.learn_screen import LearnScreen

    return LearnScreen(model)


def _error(error: RivalsError, as_json: bool) -> int:
    """With --json an error is an event, too."""
    if not as_json:
        raise error
    echo_json({"event": "error", "sentence": str(error)})
    return 2
