"""`rivals bench`: the cost of training, tickets and memory on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rivals.cli.echo import echo_json
from rivals.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Console

    from rivals.experiment.bench.bench_row import Row


def bench(
    suite: Annotated[
        str, typer.Option(help="train, memory, tickets, growth, load, deploy, edge, serve, or all.")
    ] = "all",
    repeat: Annotated[int, typer.Option(help="Repetitions; medians are shown.")] = 15,
    as_json: JsonOption = False,
) -> int:
    """Measure the cost of training, tickets and memory. Each value has a target."""
    from rivals.cli.terminal import Terminal
    from rivals.experiment.bench.machine import machine
    from rivals.experiment.bench.suites import measure

    progress = Terminal(stderr=True)
    rows = []
    for row in measure(suite, repeat):
        rows.append(row)
        if progress.is_terminal:
            progress.print(f"{row.suite}: {row.name}")
    facts = machine()
    facts["threads"] = 1  # of torch, while it was measured
    if as_json:
        echo_json({"machine": facts, "rows": [row.to_dict() for row in rows]})
    else:
        show(Terminal(), facts, rows)
    return 0


def show(console: Console, facts: dict[str, Any], rows: list[Row]) -> None:
    """The machine, the table, and below it how each row was measured."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from rivals.experiment.bench.bench_row import number

    console.print(
        f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}, torch {facts['torch']}, "
        f"{facts['threads']} thread, load {facts['load']}",
        soft_wrap=True,
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False)  # so that nothing is cut on 80 columns
    for head in ("name", "value", "spread", "unit", "target", "met"):
        number_like = head in ("value", "spread")
        table.add_column(head, justify="right" if number_like else "left", overflow="fold")
    for row in rows:
        spread = "" if row.spread is None else "–".join(number(value) for value in row.spread)
        met = {True: "yes", False: "no", None: ""}[row.met]
        target = "" if row.target is None else str(row.target)
        table.add_row(row.name, number(row.value), spread, row.unit, target, met)
    console.print(table)
    for row in rows:
        console.print(f"{row.name}: {row.how}.", soft_wrap=True)
