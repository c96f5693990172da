"""Errors a person can act on: in one sentence what was found, what was expected, what to do."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator

OPTION = re.compile(r"(?<!\S)--([a-z][a-z-]*)")
ARGUMENTS = {"augment": "augmentation"}  # options that have another name in Python
LONGEST = 4_000  # characters of a sentence: names and values in it may come from a file


class RivalsError(Exception):
    """The user's mistake or the machine's limit, in one sentence; the command line exits with 2.

    Sentences are written with the options of the command line. In Python they name the arguments:
    `--epochs` becomes `epochs`, but for commands in backquotes.

    >>> import rivals
    >>> try:
    ...     rivals.methods["twtta"]
    ... except rivals.RivalsError as error:
    ...     print(error)
    There is no method named 'twtta'; did you mean twta?
    """

    _on_command_line = False

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
        if RivalsError._on_command_line:
            return text
        parts = text.split("`")  # every second one is a command
        parts[::2] = [OPTION.sub(_argument, part) for part in parts[::2]]
        return "`".join(parts)


def _argument(option: re.Match[str]) -> str:
    name = option[1].rstrip("-")
    return ARGUMENTS.get(name, name.replace("-", "_"))


@contextlib.contextmanager
def command_line() -> Iterator[None]:
    """Until the end of the block, errors name options, for whoever reads them has a terminal."""
    before, RivalsError._on_command_line = RivalsError._on_command_line, True
    try:
        yield
    finally:
        RivalsError._on_command_line = before


class Interrupted(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Learning was asked to stop. A run is saved; a model is as it was.

    >>> import rivals
    >>> settings = {"tasks": 1, "epochs": 1, "architecture": "mlp", "widths": (16, 16)}
    >>> try:
    ...     rivals.run("digits", settings=settings, out="runs/a", asked_to_stop=lambda: True)
    ... except rivals.Interrupted:
    ...     results = rivals.run("digits", settings=settings, out="runs/a", resume=True)
    >>> len(results.matrix)
    1
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> RivalsError:
    """The error for an unknown name, with the nearest known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names)}."
    return RivalsError(f"There is no {kind} named '{name}'; {hint}")
