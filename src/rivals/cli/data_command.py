"""`rivals data`: which data sets are here, where they come from, on what terms; `get`, `check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rivals.streams.data.status import Status

app = typer.Typer(help="Which data sets are here, and where the others come from.")

Root = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Folder with the data sets.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _use(data: Path | None) -> None:
    from rivals.errors import RivalsError
    from rivals.streams.data.find import use

    if data is not None:
        if data.exists() and not data.is_dir():
            raise RivalsError(f"--data is {data}, a file, but a folder was expected.")
        use(data)


def _facts(status: Status) -> dict[str, Any]:
    return {
        "name": status.dataset.name,
        "title": status.dataset.title,
        "state": status.state,
        "note": status.note,
        "official": status.official,
        "folder": str(status.root) if status.root else None,
        "train": status.train,
        "test": status.test,
        "fingerprint": status.fingerprint,
        "home": status.dataset.home,
        "terms": status.dataset.terms,
    }


def _print(found: list[Status], as_json: bool, thorough: bool) -> None:
    if as_json:
        import json

        typer.echo(json.dumps([_facts(status) for status in found], indent=1, ensure_ascii=False))
        return
    for status in found:
        state = status.state
        if thorough and state in ("complete", "subset"):
            state += ", official files" if status.official else ", not the official bytes"
        typer.echo(f"{status.dataset.name:<14} {state}")
        if status.note:
            typer.echo(f"               {status.note.removeprefix(f'{status.dataset.title}: ')}")
        if status.root is not None and status.state != "broken":
            typer.echo(
                f"               {status.train:,} training and {status.test:,} test images in "
                f"{status.root}"
            )
        if not thorough:
            typer.echo(f"               {status.dataset.home} ({status.dataset.terms})")
    if not thorough:
        typer.echo(
            "\n`rivals data get NAME` fetches one, `rivals data check` verifies what is here."
        )


@app.callback(invoke_without_command=True)
def show(context: typer.Context, data: Root = None, json: Json = False) -> None:
    """List every data set: absent, complete or subset, its home and its terms."""
    _use(data)
    if context.invoked_subcommand is not None:
        return
    from rivals.streams.data.catalogue import CATALOGUE
    from rivals.streams.data.status import survey

    _print([survey(entry) for entry in CATALOGUE], json, thorough=False)


@app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="A data set, as `rivals data` lists it.")],
    data: Root = None,
    json: Json = False,
) -> None:
    """Download a data set from its official address, and check it."""
    _use(data)
    from rivals.streams.data.catalogue import dataset
    from rivals.streams.data.download import get

    entry = dataset(name)
    files = [str(path) for path in get(entry)]
    if json:
        import json as writer

        typer.echo(writer.dumps({"name": name, "files": files}, indent=1))
    else:
        typer.echo(f"{entry.title} is here: {', '.join(files)}. Terms: {entry.terms}.")


@app.command("check")
def check_data(
    name: Annotated[str, typer.Argument(help="Only this data set.")] = "",
    data: Root = None,
    json: Json = False,
) -> None:
    """Verify what is here: sum every file, decode every image."""
    _use(data)
    from rivals.errors import RivalsError
    from rivals.streams.data.catalogue import CATALOGUE, dataset
    from rivals.streams.data.find import locate
    from rivals.streams.data.status import survey

    chosen = [dataset(name)] if name else list(CATALOGUE)
    if name:
        locate(chosen[0])
    found = [survey(entry, thorough=True) for entry in chosen]
    _print(found, json, thorough=True)
    broken = [status.dataset.name for status in found if status.state == "broken"]
    if broken:
        raise RivalsError(
            f"{' and '.join(broken)} {'is' if len(broken) == 1 else 'are'} broken as said above; "
            "remove the file and run `rivals data get NAME`."
        )
