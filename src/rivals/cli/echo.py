"""Plain lines to the terminal. Names from elsewhere are shown in them, and never obeyed."""

from __future__ import annotations

import json
from typing import Any

import typer

from rivals.io.reading import printable

LINE = 10_000  # characters; paths and sentences are shown whole


def echo(text: str = "", err: bool = False) -> None:
    """One line: control codes and newlines in it are replaced."""
    typer.echo(printable(text, LINE), err=err)


def echo_json(value: Any, indent: int | None = None, err: bool = False) -> None:
    """JSON for another program: exact, since it is escaped anyway."""
    typer.echo(json.dumps(value, indent=indent), err=err)
