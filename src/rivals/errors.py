"""Errors a person can act on: in one sentence what was found, what was expected, what to do."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator

OPTION = re.compile(
    r"(?<!\S)(?P<before>(?:with|use|add|by) )?--(?P<name>[a-z][a-z-]*)"
    r"(?P<value> (?!(?:is|and|or|for|of|to|on|needs|takes|writes|with)\b)(?=[\w./…-]))?"
)
ARGUMENTS = {"augment": "augmentation", "model": "path"}  # other names in Python
FLAGS = {"again", "all-tasks", "float-input", "grey", "resume", "run-native", "strict"}
COMMANDS = {  # and what does the same in Python; others exist on the command line only
    "rivals ancestor make": "rivals.make_ancestor",
    "rivals export": "Model.export",
    "rivals learn": "Model.learn",
    "rivals pack": "Model.pack",
    "rivals run": "rivals.run",
    "rivals unpack": "Model.unpack",
}
ONLY_HERE = (  # options that are no arguments
    (re.compile(r"--data DIR"), "$RIVALS_DATA"),
    (re.compile(r"add --allow-import (\S+?)(?=\.?$)"),
     r"do this inside rivals.registry.imports_allowed(['\1'])"),
)  # fmt: skip
LONGEST = 4_000  # characters of a sentence: names and values in it may come from a file


class RivalsError(Exception):
    """The user's mistake or the machine's limit, in one sentence; the command line exits with 2.

    Sentences are written with the options of the command line. In Python they name the arguments:
    `--epochs` becomes `epochs`, and `rivals learn` becomes `Model.learn`.

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
        parts[::2] = [_arguments(part) for part in parts[::2]]
        parts[1::2] = [_call(part) for part in parts[1::2]]
        return "`".join(parts)


def _arguments(text: str) -> str:
    for option, words in ONLY_HERE:
        text = option.sub(words, text)
    return OPTION.sub(_argument, text)


def _argument(option: re.Match[str]) -> str:
    """`--name` → name, `with --name` → with the argument name, `--name x` → name=x."""
    name, before = option["name"].rstrip("-"), option["before"] or ""
    known = ARGUMENTS.get(name, name.replace("-", "_"))
    if name in FLAGS:
        return f"{before}{known}=True{option['value'] or ''}"
    if option["value"]:
        return f"{before}{known}="
    return f"{before}the argument {known}" if before else known


def _call(command: str) -> str:
    """`rivals run … --resume` → rivals.run(…, resume=True); what has no call stays a command."""
    for words, call in COMMANDS.items():
        if command == words or command.startswith(f"{words} "):
            return f"{call}(…, resume=True)" if command.endswith(" --resume") else call
    return command


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
