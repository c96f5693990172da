"""The console of all screens: text, tables and progress bars, by rich.

Names of tasks, classes, benchmarks and files may come from somebody else. Control codes, newlines
and rich's markup in them are shown as they are or replaced, and never obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.segment import Segment
from rich.text import Text

from rivals.cli.echo import LINE
from rivals.io.reading import printable


class Terminal(Console):
    """A console on which every text is one line without control codes; styles are added by us."""

    def __init__(self, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """What rich makes of each string: of lines, cells, heads and titles."""
        return super().render_str(printable(text, LINE), **{**options, "markup": False})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What rich makes of everything else: here of texts that have styles."""
        if isinstance(renderable, Text):
            plain = printable(renderable.plain, len(renderable))
            if plain != renderable.plain:
                renderable = renderable.copy()
                renderable.plain = plain
        return super().render(renderable, options)


def bars(console: Console, *last: ProgressColumn, width: int | None = 40) -> Progress:
    """Progress bars that vanish when they end: a description, a bar, its field `note`."""
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=width),
        TextColumn("{task.fields[note]}", markup=False), *last,
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
