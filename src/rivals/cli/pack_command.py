"""`rivals pack` and `rivals unpack`: a model as one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import JsonOption, SignatureOption
from rivals.cli.stop_signals import sigterm_as_exception


def pack(
    model: Annotated[Path, typer.Argument(help="The folder of a model.")],
    out: Annotated[Path, typer.Argument(help="The file to write, e.g. parts.rivals.")],
    as_json: JsonOption = False,
) -> int:
    """Write a model as one file. The same model gives the same file on every machine."""
    from rivals.model.packing import pack as pack_model

    with sigterm_as_exception():
        packed = pack_model(model, out)
    if as_json:
        echo_json(packed.to_dict())
    else:
        echo(
            f"Packed {_tasks(packed.tasks)} into {out}: {packed.bytes:,} bytes, SHA-256 "
            f"{packed.sha256}."
        )
    return 0


def unpack(
    file: Annotated[Path, typer.Argument(help="A file that `rivals pack` wrote.")],
    model: Annotated[Path, typer.Option(help="The new folder of the model.")],
    require_signature: SignatureOption = None,
    as_json: JsonOption = False,
) -> int:
    """Make a model of one file. It is checked first, and nothing in it is executed."""
    from rivals.model.packing import unpack as unpack_model

    with sigterm_as_exception():
        content = unpack_model(file, model, require_signature)
    names = tuple(task.name for task in content.tasks)
    if as_json:
        echo_json({"model": str(model), "tasks": list(names), "bytes": content.total_bytes()})
    else:
        echo(f"Unpacked {_tasks(names)} into the model {model}.")
    return 0


def _tasks(names: tuple[str, ...]) -> str:
    return f"{len(names):,} task{'' if len(names) == 1 else 's'}"
