"""A matrix on the terminal that fits 80 columns: names in rows, numbers as column heads."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

NAME_WIDTH = 16  # characters of a row's name; longer ones are cut


def matrix_table(heading: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Row k is called `k: name`, and column k belongs to the same name; rows may be shorter."""
    table = Table(box=box.SIMPLE, pad_edge=False, padding=0)
    table.add_column(heading, no_wrap=True)
    for number in range(1, len(names) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for number, (name, row) in enumerate(zip(names, rows, strict=True), 1):
        label = f"{number}: {name}"
        table.add_row(label if len(label) <= NAME_WIDTH else f"{label[: NAME_WIDTH - 1]}…", *row)
    return table
