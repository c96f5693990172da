"""Options that several verbs share, and how they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rivals.errors import RivalsError

AllowImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-import",
        metavar="MODULE:NAME",
        help="Import this module of your own that the folder or the file names; may be repeated.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the data sets; default: $RIVALS_DATA, then a cache.",
    ),
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="Where to train: cpu, cuda, mps or auto.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LogOption = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="A,B",
        help="Log steps and tasks to csv, tensorboard, mlflow or wandb; several with commas.",
    ),
]
LogEveryOption = Annotated[
    int, typer.Option("--log-every", metavar="N", help="Log every N-th step of a task.")
]
SaveOption = Annotated[
    float, typer.Option("--save-every", help="Seconds between two checkpoints inside a task.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
]
SignatureOption = Annotated[
    Path | None,
    typer.Option(
        "--require-signature",
        "--trust",
        metavar="KEY.pub",
        help="Trust what is signed with the private key of this public one, and refuse all else.",
    ),
]
ThreadsOption = Annotated[int, typer.Option("--threads", help="Number of CPU threads.")]

MOST_THREADS = 1024


def use_data_folder(folder: Path | None) -> None:
    """Look for data sets in `folder`, in this process and in its child processes."""
    from rivals.streams.data.find import use

    if folder is None:
        return
    if not folder.is_dir():
        raise RivalsError(f"{folder} is not a folder; --data expects the folder of the data sets.")
    use(folder.resolve())


def check_threads(threads: int) -> None:
    if not 1 <= threads <= MOST_THREADS:
        raise RivalsError(f"--threads is {threads}, but must be between 1 and {MOST_THREADS}.")


def check_formats(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise RivalsError("--json and --csv cannot be combined; choose one.")


def check_writable(path: Path | None, option: str, endings: Sequence[str]) -> None:
    """Refuse a picture that cannot be written before any other is read."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        *others, last = endings
        named = f"{', '.join(others)} or {last}" if others else last
        raise RivalsError(f"{option} is {path}, but its name must end in {named}.")
    if not path.absolute().parent.is_dir():
        raise RivalsError(f"There is no folder {path.parent} for {path.name}; create it first.")
    if path.is_dir():
        raise RivalsError(f"{option} is {path}, which is a folder; name a file.")
