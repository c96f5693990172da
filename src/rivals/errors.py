"""Errors a person can act on: in one sentence what was found, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RivalsError(Exception):
    """The user's mistake or the machine's limit, in one sentence; the command line exits with 2.

    >>> import rivals
    >>> try:
    ...     rivals.methods["twtta"]
    ... except rivals.RivalsError as error:
    ...     print(error)
    There is no method named 'twtta'; did you mean twta?
    """


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
