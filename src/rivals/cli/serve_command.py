"""`rivals serve`: a local page to train a model, try it and download tickets."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.ancestors import NO_ANCESTOR, SHIPPED
from rivals.cli.options import JsonOption
from rivals.errors import RivalsError
from rivals.io.reading import printable

if TYPE_CHECKING:
    from rivals.web.server import Address


def serve(
    model: Annotated[Path, typer.Option(help="Folder of the model; created with its first task.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 allows other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.")] = 8017,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a token of your own; otherwise $RIVALS_TOKEN, or a new one."),
    ] = None,
    ancestor: Annotated[
        str | None,
        typer.Option(
            help="New model only: what to start from: small (default), tiny, none, a folder, or "
            "timm:NAME[=WEIGHTS]."
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Serve a local page: collect pictures, train, try, download."""
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise RivalsError(
            f"The page needs {' and '.join(missing)}, not installed here; "
            "run pip install 'rivals[web]'."
        )
    if model.exists() and not model.is_dir():
        raise RivalsError(f"{model} is a file, but --model needs a folder.")
    if not model.absolute().parent.is_dir():
        raise RivalsError(
            f"There is no folder {model.absolute().parent} for the model; create it first."
        )
    from rivals.web.server import serve as serve_model

    if ancestor not in (None, NO_ANCESTOR, *SHIPPED):
        from rivals.ancestors.timm_backbone import absolute, is_backbone
        from rivals.model.ancestor_file import find

        find(ancestor)  # refused now, not with the first task
        if is_backbone(ancestor):
            ancestor = absolute(ancestor)
        elif Path(ancestor).is_dir():
            ancestor = str(Path(ancestor).resolve())  # tasks are learned by other processes

    check_sees(model)

    def ready(address: Address) -> None:
        if as_json:
            typer.echo(json.dumps({"url": address.url, "model": str(model)}))
            return
        typer.echo(f"The page of {printable(str(model))} is at {address.url}")
        typer.echo(
            "Ctrl-C ends it; nothing is lost. Anyone with this address can change the model."
        )
        if not address.is_local:
            typer.echo("The connection is not encrypted; use a network that you trust.")

    serve_model(model, host, port, ready, token_file, browser, ancestor)
    return 0


def check_sees(model: Path) -> None:
    """Refuse a model of sounds: the page collects and shows pictures."""
    from rivals.model import manifest

    if not manifest.exists(model):
        return
    try:
        sound = manifest.read(model).sound
    except RivalsError:
        return  # the page says what is wrong with it
    if sound is not None:
        raise RivalsError(
            f"The model {model} reads sounds, but the page is for pictures; use `rivals learn` "
            "and `rivals predict`."
        )
