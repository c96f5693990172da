"""A progress bar on the terminal; nothing is shown if the output is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(
    title: str, total: int, done: int = 0, size: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar by a number of images, or of bytes if `size`."""
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
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, completed=done)
        yield lambda step: progress.advance(task, step)
