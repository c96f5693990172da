"""`rivals data`: list the data sets, download them (`get`) and verify them (`check`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rivals.cli.echo import echo, echo_json
from rivals.cli.options import DataOption, JsonOption

if TYPE_CHECKING:
    from rivals.streams.data.status import Status

app = typer.Typer(help="List, download and verify data sets.")


def _use(data: Path | None) -> None:
    from rivals.errors import RivalsError
    from rivals.streams.data.find import use

    if data is not None:
        if data.exists() and not data.is_dir():
            raise RivalsError(f"{data} is a file, but --data needs a folder.")
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
        echo_json([_facts(status) for status in found], indent=1)
        return
    for status in found:
        state = status.state
        if thorough and state in ("complete", "subset"):
            state += ", official files" if status.official else ", not the official bytes"
        echo(f"{status.dataset.name:<14} {state}")
        if status.note:
            echo(f"               {status.note.removeprefix(f'{status.dataset.title}: ')}")
        if status.root is not None and status.state != "broken":
            echo(
                f"               {status.train:,} training and {status.test:,} test images in "
                f"{status.root}"
            )
        if not thorough:
            echo(f"               {status.dataset.home} ({status.dataset.terms})")
    if not thorough:
        echo()
        echo("`rivals data get NAME` downloads one, `rivals data check` verifies the local files.")


@app.callback(invoke_without_command=True)
def show(context: typer.Context, data: DataOption = None, json: JsonOption = False) -> None:
    """List all data sets: whether they are here, their source and their terms of use."""
    _use(data)
    if context.invoked_subcommand is not None:
        return
    from rivals.streams.data.catalogue import CATALOGUE
    from rivals.streams.data.status import survey

    _print([survey(entry) for entry in CATALOGUE], json, thorough=False)


@app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="Name of a data set, as listed by `rivals data`.")],
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Download a data set from its official address, and check it."""
    _use(data)
    from rivals.streams.data.catalogue import dataset
    from rivals.streams.data.download import get

    entry = dataset(name)
    files = [str(path) for path in get(entry)]
    if json:
        echo_json({"name": name, "files": files}, indent=1)
    else:
        echo(f"{entry.title} is here: {', '.join(files)}. Terms: {entry.terms}.")


@app.command("check")
def check_data(
    name: Annotated[str, typer.Argument(help="Only this data set.")] = "",
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Verify the local files: check every checksum and decode every image."""
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
