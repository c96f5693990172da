"""`rivals info`: what a model, a run, a ticket or an ancestor holds, and settings of a method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from rivals.cli.echo import echo_json
from rivals.cli.options import JsonOption
from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rivals.settings import Settings

UNIT_SIGNS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_BLOCKS = 64  # in a row of the map of winners
MOST_NAMES = 20  # classes of a task that are listed
COMPARED = 8  # the latest tasks, whose winners are compared


def info(
    path: Annotated[
        Path | None, typer.Argument(help="The folder of a model, a run, a ticket or an ancestor.")
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Show the settings of a method or of a benchmark instead."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Show what a model, a run or a ticket holds. Tasks, accuracy, weights and bytes."""
    if (path is None) == (settings is None):
        raise RivalsError(
            "`rivals info` needs either the folder of a model, a run or a ticket, or --settings "
            "with the name of a method; give one of them."
        )
    if settings is not None:
        from rivals.registry import imports_allowed

        with imports_allowed([settings]):
            facts = settings_facts(settings)
    else:
        assert path is not None
        from rivals.model.folder_kind import folder_kind

        read = {
            "ticket": ticket_facts, "run": run_facts, "model": model_facts,
            "ancestor": ancestor_facts,
        }  # fmt: skip
        facts = read[folder_kind(path)](path)
    if as_json:
        echo_json(facts)
        return 0
    from rivals.cli.terminal import Terminal

    show = {
        "settings": show_settings, "ticket": show_ticket, "run": show_run, "model": show_model,
        "ancestor": show_ancestor,
    }  # fmt: skip
    show[facts["kind"]](facts, Terminal())
    return 0


# Settings ----------------------------------------------------------------------------------------


def settings_facts(name: str) -> dict[str, Any]:
    """Name, default and help of every setting, from the fields of the settings models."""
    from rivals.errors import unknown
    from rivals.learn.method import methods
    from rivals.nn.network_plan import NetworkSettings
    from rivals.streams.stream import streams

    groups: dict[str, type[Settings]]
    if name in methods or (":" in name and name not in streams):
        groups = {"training": methods[name].settings_class, "network": NetworkSettings}
    elif name in streams:
        groups = {"stream": streams[name].settings}
    else:
        raise unknown("method or benchmark", name, [*methods, *streams])
    found = {group: _rows(model) for group, model in groups.items()}
    return {"kind": "settings", "name": name, "settings": found}


def _rows(model: type[Settings]) -> list[dict[str, Any]]:
    from functools import reduce

    from rivals.settings import leaves

    defaults = model()  # a nested default may differ from that of the nested model
    return [
        {
            "name": path,
            "default": _plain(reduce(getattr, path.split("."), defaults)),
            "choices": list(get_args(field.annotation))
            if get_origin(field.annotation) is Literal
            else None,
            "help": field.description or "",
        }
        for path, field in leaves(model)
    ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def show_settings(facts: dict[str, Any], console: Console) -> None:
    from rich import box
    from rich.table import Table

    for group, rows in facts["settings"].items():
        console.print(f"Settings of {facts['name']}, {group}:", soft_wrap=True)
        table = Table(
            "name", "default", "meaning", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0)
        )
        table.columns[0].no_wrap = True
        for row in rows:
            choices = f" ({' | '.join(map(str, row['choices']))})" if row["choices"] else ""
            table.add_row(row["name"], _as_written(row["default"]), f"{row['help']}{choices}")
        console.print(table if rows else "  none")
        if not rows:
            console.print()
    console.print(
        "Change a setting with --set NAME=VALUE. The last word of a dotted name is enough if no "
        "other setting ends in it.",
        soft_wrap=True,
    )


def _as_written(value: Any) -> str:
    """A value as --set takes it."""
    if isinstance(value, list):
        return "-".join(map(str, value)) or "(empty)"
    if isinstance(value, bool):
        return str(value).lower()
    return "(empty)" if value == "" else str(value)


# Tickets -----------------------------------------------------------------------------------------


def ticket_facts(path: Path) -> dict[str, Any]:
    from rivals.deploy.export_record import remembered
    from rivals.tickets.cost import working_memory
    from rivals.tickets.ticket import Ticket, read_ticket

    ticket, (facts, _) = Ticket.load(path), read_ticket(path)
    ram = working_memory(ticket.network, ticket.input_shape)
    more = {"fingerprint": ticket.fingerprint(), "ram": ram, "exports": remembered(path)}
    return {"kind": "ticket", **facts, **more}


def show_ticket(facts: dict[str, Any], console: Console) -> None:
    """What matters on a device: size, cost and accuracy."""
    from rich.table import Table

    table = Table(show_header=False, title=f"ticket for {facts['task']}")
    channels, height, width = facts["input_shape"]
    table.add_row("classes", ", ".join(facts["classes"]))
    table.add_row("input", f"{channels} × {height} × {width}")
    table.add_row("multiplications per image", f"{facts['macs']:,}")
    table.add_row("weights", f"{facts['weights']:,}")
    table.add_row(
        "flash for weights",
        f"{4 * facts['weights']:,} bytes as float32, {facts['weights']:,} as int8",
    )
    table.add_row("RAM between layers", f"{facts['ram']:,} bytes")
    exports = facts["exports"]
    for target, sizes in exports.get("c", {}).get("sizes", {}).items():
        parts = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        table.add_row(f"in C on {target}", f"{parts} bytes")
    accuracy = facts["accuracy"]
    table.add_row("accuracy", "not measured" if accuracy is None else f"{accuracy:.1f} %")
    int8 = exports.get("onnx-int8", {}).get("parity", {}).get("after")
    table.add_row(
        "accuracy in int8",
        "not measured; export it with --to onnx-int8" if int8 is None else f"{int8:.1f} %",
    )
    table.add_row("file", f"{facts['bytes']:,} bytes")
    for name, export in exports.items():
        table.add_row(f"exported as {name}", f"{export['bytes']:,} bytes")
    console.print(table)


# Runs --------------------------------------------------------------------------------------------


def run_facts(path: Path) -> dict[str, Any]:
    from rivals.experiment.result_file import read_results
    from rivals.experiment.run_folder import RunFolder

    folder = RunFolder(path)
    config = folder.read_config()
    results = read_results(folder.results) if folder.results.exists() else None
    return {"kind": "run", "config": config, "results": results}


def show_run(facts: dict[str, Any], console: Console) -> None:
    from rich.table import Table

    from rivals.cli.run_screen import show_results

    results, config = facts["results"], facts["config"]
    if results is None:
        console.print(
            f"A run of {config['method']} on {config['benchmark']}: no task is learned yet."
        )
        return
    if not results["complete"]:
        done = len(results["tasks"])
        console.print(
            f"Not finished: {done} task{'' if done == 1 else 's'} learned; continue with --resume."
        )
    show_results(results, console)
    table = Table("task", title="tickets")
    for head in ("classes", "accuracy %", "weights", "bytes", "MACs"):
        table.add_column(head, justify="right")
    for task, accuracy in zip(results["tasks"], results["matrix"][-1], strict=True):
        ticket = task["ticket"]
        numbers = (f"{ticket[key]:,}" for key in ("weights", "bytes", "macs"))
        table.add_row(task["name"], str(len(task["classes"])), f"{accuracy:.1f}", *numbers)
    console.print(table)


# Ancestors ---------------------------------------------------------------------------------------


def ancestor_facts(path: Path) -> dict[str, Any]:
    from rivals.model.ancestor_file import read

    found = read(path)
    return {"kind": "ancestor", "bytes": len(found.data), **found.card}


def show_ancestor(facts: dict[str, Any], console: Console) -> None:
    """What its card says."""
    from rich.table import Table

    table = Table(show_header=False, title=f"ancestor {facts['name']}")
    for name, value in facts.items():
        if name not in ("kind", "format", "name"):
            table.add_row(name.replace("_", " "), _as_written(value))
    console.print(table)


# Models ------------------------------------------------------------------------------------------


def model_facts(path: Path) -> dict[str, Any]:
    from rivals.model import spare_space
    from rivals.model.folder import ModelFolder
    from rivals.model.manifest import NAME

    model = ModelFolder.open(path)
    description, history = model.description, model.description.history
    names = [task.name for task in model.tasks]
    return {
        "kind": "model",
        "network": description.network,
        "ancestor": description.ancestor.to_dict() if description.ancestor else None,
        "input_shape": list(description.input_shape),
        "sound": description.sound.to_dict() if description.sound else None,
        "units": list(description.units),
        "bytes": (path / NAME).lstat().st_size + description.total_bytes(),
        "spare": spare_space.held(path),
        "tasks": [task.to_dict() for task in model.tasks],
        "history": None
        if history is None
        else {"events": len(history.lines), "newest": history.newest},
        "room": model.room(),
        "overlap": model.overlap(),
        "winners": {name: model.winners(name) for name in names},
    }


def show_model(facts: dict[str, Any], console: Console) -> None:
    """The tasks, the free weights, and a map of the winners."""
    from rich.table import Table

    from rivals.model.testing import plus_minus

    channels, height, width = facts["input_shape"]
    spare = f", and {facts['spare']:,} in reserve to drop tasks" if facts["spare"] else ""
    ancestor = facts["ancestor"]
    began = f" that began with the ancestor {ancestor['name']}" if ancestor else ""
    console.print(
        f"A {facts['network']} model{began}, for pictures of {channels} × {height} × {width}, "
        f"{facts['bytes']:,} bytes{spare}.",
        soft_wrap=True,
    )
    if ancestor and "trained_on" in ancestor:
        terms = f" Terms: {ancestor['terms']}." if "terms" in ancestor else ""
        console.print(
            f"The ancestor was trained on {ancestor['trained_on']}.{terms}", soft_wrap=True
        )
    if facts["sound"]:
        from rivals.io.spectrogram import SoundSettings

        console.print(f"Its pictures are those of sounds: {SoundSettings(**facts['sound'])}.")
    if facts["history"]:
        console.print(
            f"History: {facts['history']['events']:,} events, newest {facts['history']['newest']}",
            soft_wrap=True,
        )
    if not facts["tasks"]:
        console.print("It knows no task; learn one with `rivals learn`.")
        return
    table = Table("task")
    for head in ("classes", "pictures", "accuracy", "weights", "bytes", "seconds"):
        table.add_column(head, justify="right")
    for task in facts["tasks"]:
        table.add_row(
            task["name"], f"{len(task['classes']):,}", f"{task['images']:,}",
            plus_minus(task["accuracy"], task["held"]), f"{task['weights']:,}",
            f"{task['bytes']:,}", f"{task['seconds']:.0f}",
        )  # fmt: skip
    console.print(table)
    for task in facts["tasks"]:
        console.print(f"{task['name']}: {_listed(task['classes'])}", soft_wrap=True)
    if len(facts["tasks"]) > 1:
        console.print(_overlap_table(facts))
    rooms = ", ".join(f"{100 * share:.0f} %" for share in facts["room"].values())
    console.print(f"Free weights, layer by layer: {rooms}.")
    _show_winners(facts, console)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def _overlap_table(facts: dict[str, Any]) -> Table:
    """The share of winners that two tasks have in common."""
    from rich.table import Table

    latest = slice(-COMPARED, None)
    names = [task["name"] for task in facts["tasks"]][latest]
    table = Table("same winners %", *names)
    for name, row in zip(names, facts["overlap"][latest], strict=True):
        table.add_row(name, *(f"{value:.0f}" for value in row[latest]))
    return table


def _show_winners(facts: dict[str, Any], console: Console) -> None:
    """A row for each task and a sign for each block: the unit that won it."""
    from rich.text import Text

    names = [name for name, winners in facts["winners"].items() if winners]  # not direct tasks
    width = min(20, max((len(name) for name in names), default=0))
    for layer, units in enumerate(facts["units"] if names else []):
        blocks = len(facts["winners"][names[0]][layer])
        first = f", the first {MOST_BLOCKS}" if blocks > MOST_BLOCKS else ""
        console.print(f"Winners of layer {layer + 1}: {blocks} blocks of {units} units{first}")
        used: set[tuple[int, int]] = set()  # by an earlier task, shown dim
        for name in names:
            row = Text(f"  {name[:width]:<{width}}  ")
            for block, unit in enumerate(facts["winners"][name][layer][:MOST_BLOCKS]):
                style = "dim" if (block, unit) in used else "bold"
                row.append(UNIT_SIGNS[unit % len(UNIT_SIGNS)], style=style)
                used.add((block, unit))
            console.print(row, soft_wrap=True)
