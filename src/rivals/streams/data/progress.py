"""A bar on the terminal for what takes long; nothing when the output is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(
    title: str, total: int, done: int = 0, size: bool = False
) -> Iterator[Callable[[int], None]]:
    """A function that moves the bar on by so many images, or bytes if `size`."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    amount: ProgressColumn = DownloadColumn() if size else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, completed=done)
        yield lambda step: progress.advance(task, step)
