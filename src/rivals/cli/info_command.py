"""`rivals info`: what is in a model, a run or a ticket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rivals.errors import RivalsError

if TYPE_CHECKING:
    from rich.table import Table

HINT = "name a folder that `rivals learn` or `rivals run` has made."


def info(
    path: Annotated[Path, typer.Argument(help="The folder of a model, a run or a ticket.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> int:
    """Show the tasks, accuracy, weights and bytes of what lies at PATH."""
    try:
        names = {each.name for each in path.iterdir()}
    except NotADirectoryError as error:
        raise RivalsError(f"{path} is no folder; {HINT}") from error
    except OSError as error:
        raise RivalsError(f"{path} cannot be read ({error.strerror}); {HINT}") from error
    if "ticket.json" in names:
        facts = _ticket(path)
    elif "config.yaml" in names:
        facts = _run(path)
    elif "model.json" in names:
        from rivals.cli.info_model import facts as model_facts

        facts = model_facts(path)
    else:
        raise RivalsError(f"{path} holds neither a model, a run nor a ticket; {HINT}")
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _show(facts)
    return 0


def _ticket(path: Path) -> dict[str, Any]:
    from rivals.deploy.export_record import remembered
    from rivals.tickets.cost import working_memory
    from rivals.tickets.ticket import Ticket

    ticket = Ticket.load(path)
    facts: dict[str, Any] = json.loads((path / "ticket.json").read_text())
    ram = working_memory(ticket.network, ticket.input_shape)
    more = {"fingerprint": ticket.fingerprint(), "ram": ram, "exports": remembered(path)}
    return {"kind": "ticket", **facts, **more}


def _run(path: Path) -> dict[str, Any]:
    from rivals.experiment.results import read_results
    from rivals.experiment.run_folder import RunFolder

    folder = RunFolder(path)
    config = folder.read_config()
    if not folder.results.exists():
        return {"kind": "run", "config": config, "results": None}
    return {"kind": "run", "config": config, "results": read_results(folder.results)}


def _show(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from rivals.cli.screen import matrix_table, summary_table

    console = Console(highlight=False, markup=False, emoji=False)
    if facts["kind"] == "model":
        from rivals.cli.info_model import show

        show(facts, console)
        return
    if facts["kind"] == "ticket":
        console.print(_ticket_table(facts))
        return
    results, config = facts["results"], facts["config"]
    if results is None:
        console.print(f"A run of {config['method']} on {config['benchmark']}: no task is done yet.")
        return
    if not results["complete"]:
        console.print(f"Not finished: {len(results['tasks'])} tasks are done; go on with --resume.")
    console.print(matrix_table(results))
    console.print(summary_table(results))
    table = Table("task", "classes", "accuracy %", "weights", "bytes", "MACs", title="tickets")
    for task, accuracy in zip(results["tasks"], results["matrix"][-1], strict=True):
        ticket = task["ticket"]
        numbers = (f"{ticket[key]:,}" for key in ("weights", "bytes", "macs"))
        table.add_row(task["name"], str(len(task["classes"])), f"{accuracy:.1f}", *numbers)
    console.print(table)


def _ticket_table(facts: dict[str, Any]) -> Table:
    """What people with a device ask: will it fit, how much work is it, how good is it."""
    from rich.table import Table

    table = Table(show_header=False, title=f"ticket for {facts['task']}")
    channels, height, width = facts["input_shape"]
    table.add_row("classes", ", ".join(facts["classes"]))
    table.add_row("input", f"{channels} × {height} × {width}")
    table.add_row("multiplications an image", f"{facts['macs']:,}")
    table.add_row("weights", f"{facts['weights']:,}")
    table.add_row("flash for weights", f"{4 * facts['weights']:,} bytes, {facts['weights']:,} int8")
    table.add_row("RAM between layers", f"{facts['ram']:,} bytes")
    exports = facts["exports"]
    for target, sizes in exports.get("c", {}).get("sizes", {}).items():
        words = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
        table.add_row(f"in C on {target}", f"{words} bytes")
    accuracy = facts["accuracy"]
    table.add_row("accuracy", "not measured" if accuracy is None else f"{accuracy:.1f} %")
    after = exports.get("onnx-int8", {}).get("parity", {}).get("after")
    how = "not measured; export it with --to onnx-int8" if after is None else f"{after:.1f} %"
    table.add_row("accuracy in int8", how)
    table.add_row("file", f"{facts['bytes']:,} bytes")
    for name, export in exports.items():
        table.add_row(f"exported as {name}", f"{export['bytes']:,} bytes")
    return table
