"""What `rivals info` says of a model: its tasks, its room, and who won what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

SIGNS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"  # a unit of a block
WIDEST = 64  # blocks in a row


def facts(path: Path) -> dict[str, Any]:
    """All of it, as JSON has it."""
    from rivals.model.folder import ModelFolder

    model = ModelFolder.open(path)
    about = model.description
    names = [task.name for task in model.tasks]
    return {
        "kind": "model",
        "network": about.network,
        "input_shape": list(about.input_shape),
        "units": list(about.units),
        "bytes": sum(each.stat().st_size for each in path.rglob("*") if each.is_file()),
        "tasks": [task.to_dict() for task in model.tasks],
        "room": model.room(),
        "overlap": model.overlap(),
        "winners": {name: model.winners(name) for name in names},
    }


def show(facts: dict[str, Any], console: Console) -> None:
    """Tables, and a map: a row for a task, a sign for each block, saying which unit won."""
    from rich.table import Table

    channels, height, width = facts["input_shape"]
    console.print(
        f"A model of {facts['network']} for pictures of {channels} × {height} × {width}, "
        f"{facts['bytes']:,} bytes.",
        soft_wrap=True,
    )
    if not facts["tasks"]:
        console.print("It knows no task; teach it with `rivals learn`.")
        return
    table = Table("task")
    for head in ("classes", "pictures", "accuracy %", "weights", "bytes", "seconds"):
        table.add_column(head, justify="right")
    for task in facts["tasks"]:
        table.add_row(
            task["name"], f"{len(task['classes']):,}", f"{task['images']:,}",
            f"{task['accuracy']:.1f}", f"{task['weights']:,}", f"{task['bytes']:,}",
            f"{task['seconds']:.0f}",
        )  # fmt: skip
    console.print(table)
    for task in facts["tasks"]:
        console.print(f"{task['name']}: {_listed(task['classes'])}", soft_wrap=True)
    if len(facts["tasks"]) > 1:
        console.print(_overlap(facts))
    rooms = ", ".join(f"{100 * share:.0f} %" for share in facts["room"].values())
    console.print(f"Free edges, layer by layer: {rooms}.")
    _map(facts, console)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"


def _overlap(facts: dict[str, Any]) -> Any:
    """How many winners two tasks share; the last tasks only, where there are very many."""
    from rich.table import Table

    last = slice(-8, None)
    names = [task["name"] for task in facts["tasks"]][last]
    table = Table("same winners %", *names)
    for name, row in zip(names, facts["overlap"][last], strict=True):
        table.add_row(name, *(f"{value:.0f}" for value in row[last]))
    return table


def _map(facts: dict[str, Any], console: Console) -> None:
    from rich.text import Text

    names = list(facts["winners"])
    wide = min(20, max(len(name) for name in names))
    for layer, units in enumerate(facts["units"]):
        blocks = len(facts["winners"][names[0]][layer])
        cut = f", the first {WIDEST}" if blocks > WIDEST else ""
        console.print(f"Winners of layer {layer + 1}: {blocks} blocks of {units} units{cut}")
        seen: dict[tuple[int, int], int] = {}
        for name in names:
            row = Text(f"  {name[:wide]:<{wide}}  ")
            for block, unit in enumerate(facts["winners"][name][layer][:WIDEST]):
                known = seen.setdefault((block, unit), 0)  # won before by another task: dim
                seen[block, unit] += 1
                row.append(SIGNS[unit % len(SIGNS)], style="dim" if known else "bold")
            console.print(row, soft_wrap=True)
