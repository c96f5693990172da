"""`rivals learn`: one new task from a folder of pictures."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rivals.errors import RivalsError

STARTED = time.monotonic()


def learn(
    folder: Annotated[Path, typer.Argument(help="A folder with a subfolder for each class.")],
    model: Annotated[Path, typer.Option(help="The model's folder; made if it is not there.")],
    name: Annotated[str | None, typer.Option(help="The task; default: the folder's name.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="More pictures of a task that is known.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a folder with files that cannot be learned.")
    ] = False,
    minutes: Annotated[float | None, typer.Option(help="Time for all of it, at most.")] = None,
    ram: Annotated[float | None, typer.Option(help="Memory in MB, at most.")] = None,
    network: Annotated[
        str | None,
        typer.Option(help="Of a new model: conv-small, lenet, mlp or resnet-small."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Of a new model: pixels a side that it looks at.")
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", help="Of a new model: without colours.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="Of a new model: all randomness comes from it; default 0.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="How often each picture is shown.")] = None,
    augment: Annotated[
        str | None, typer.Option(help="Move or mirror pictures: none, flip, crop or crop-flip.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps or auto.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print events, a line of JSON each.")] = (
        False
    ),
) -> int:
    """Teach a model the task in FOLDER; what it knows already keeps every bit."""
    from rivals.cli.json_lines import JsonLines
    from rivals.cli.run_command import StopSign

    display: Any
    if as_json:
        display = JsonLines()
    else:
        from rivals.cli.learn_screen import LearnScreen

        display = LearnScreen(folder, model)
    stop = StopSign()
    try:
        with stop, display:
            import torch

            from rivals.errors import Interrupted
            from rivals.model.model import Model

            if not 1 <= threads <= 1024:
                raise RivalsError(f"--threads is {threads}, but must be at least 1.")
            torch.set_num_threads(threads)
            try:
                Model(model, device=device).learn(
                    folder, name, again=again, strict=strict, minutes=minutes, ram=ram,
                    network=network, size=size, grey=grey or None, seed=seed, epochs=epochs,
                    augmentation=augment, listener=display, asked_to_stop=stop.seen,
                    started=STARTED,
                )  # fmt: skip
            except Interrupted:
                display({"event": "stopped"})
                return 130
    except RivalsError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"event": "error", "sentence": str(error)}))
        return 2
    return 0
