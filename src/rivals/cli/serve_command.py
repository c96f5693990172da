"""`rivals serve`: a local page to teach a model, try it and take tickets away."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rivals.web.server import Address


def serve(
    model: Annotated[Path, typer.Option(help="The model's folder; made at the first task.")],
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0 lets others in, with a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8017,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> int:
    """Serve a page on this machine: collect pictures, train, try, take away."""
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        raise RivalsError(
            f"The page needs {' and '.join(missing)}, which is not installed; "
            "use pip install 'rivals[web]'."
        )
    if model.exists() and not model.is_dir():
        raise RivalsError(f"{model} is a file; --model names the folder of a model.")
    if not model.absolute().parent.is_dir():
        raise RivalsError(f"There is no folder {model.absolute().parent} for the model; make it.")
    from rivals.web.server import serve as serve_model

    def ready(address: Address) -> None:
        if as_json:
            typer.echo(json.dumps({"url": address.url, "model": str(model)}))
        else:
            typer.echo(f"Teach {model} at {address.url}\nCtrl-C ends it; nothing is lost.")
            if address.token:
                typer.echo("Whoever has this address can change the model; it is not encrypted.")
        if browser:
            import webbrowser

            webbrowser.open(address.url)

    serve_model(model, host, port, ready)
    return 0
