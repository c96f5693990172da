"""Whether the folder of a run is whole: structure, checksums, and that its files fit each other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from rivals.errors import RivalsError
from rivals.experiment.checkpoint import Checkpoint
from rivals.experiment.result_file import check, read_results
from rivals.experiment.run_folder import RunFolder
from rivals.experiment.stored_run import restored
from rivals.io.reading import check_plain, read_json
from rivals.learn.masked_ticket import compare_with_masked
from rivals.learn.method import methods
from rivals.learn.twta import TWTA
from rivals.nn.network_plan import networks
from rivals.tickets.graph_words import describe
from rivals.tickets.ticket import Ticket

SAME = ("benchmark", "method", "preset", "seed")  # in config.yaml and results.json
TOLERANCE = 1e-5  # of a weight that was cut anew, by another version of torch


def check_run(path: Path) -> list[str]:
    """What was checked, in words; RivalsError if the run in `path` is damaged.

    Nothing is imported because the folder says so, no data set is needed, and nothing is written.
    """
    check_plain(path, "run")
    folder = RunFolder(path)
    config = folder.read_config()
    facts = [f"a run of {config['method']} on {config['benchmark']}, seed {config['seed']}"]
    results = read_results(folder.results) if os.path.lexists(folder.results) else None
    checkpoint = folder.checkpoints.load() if os.path.lexists(folder.checkpoints.manifest) else None
    if os.path.lexists(path / "measured.json"):
        read_json(path / "measured.json", "measurements", root=path)
    if results is None:
        facts.append("no task is learned yet")
    else:
        _check_fit(path, config, results)
        state = "finished" if results["complete"] else "not finished"
        facts.append(f"{len(results['tasks'])} tasks, {state}, in results.json")
    if checkpoint is None:
        facts.append("no checkpoint, so it cannot be resumed")
    else:
        facts.append(_check_checkpoint(folder, checkpoint, results))
    if results is not None:
        tickets = _tickets(folder, results)
        facts.append(f"{len(tickets)} tickets")
        if checkpoint and results["complete"]:
            facts.append(_check_cut(path, config, checkpoint, tickets))
    return facts


def _check_fit(path: Path, config: dict[str, Any], results: dict[str, Any]) -> None:
    for key in SAME:
        if config[key] != results[key]:
            raise RivalsError(
                f"The run {path} is damaged: its {key} is {config[key]} in config.yaml and "
                f"{results[key]} in results.json."
            )


def _check_checkpoint(
    folder: RunFolder, checkpoint: Checkpoint, results: dict[str, Any] | None
) -> str:
    """A run that was killed at the wrong moment has written its checkpoint, not its results."""
    if checkpoint.done:
        check(checkpoint.results, folder.checkpoints.manifest)
    stored, shown = checkpoint.results.get("tasks", []), results["tasks"] if results else []
    if len(stored) != checkpoint.done or not 0 <= len(stored) - len(shown) <= 1:
        raise RivalsError(
            f"The run {folder.path} is damaged: results.json has {len(shown)} tasks, and the "
            f"checkpoint {len(stored)}."
        )
    if len(stored) > len(shown):
        return "a checkpoint that is one task ahead of results.json; --resume writes it"
    if results is not None and checkpoint.results != results:
        raise RivalsError(
            f"The run {folder.path} is damaged: results.json and the checkpoint hold different "
            "results; `rivals run … --resume` writes those of the checkpoint."
        )
    return f"a checkpoint of {len(checkpoint.state)} parts"


def _tickets(folder: RunFolder, results: dict[str, Any]) -> dict[str, Ticket]:
    found = {}
    for task in results["tasks"]:
        ticket = Ticket.load(folder.ticket(task["name"]))
        if (ticket.task, list(ticket.classes)) != (task["name"], task["classes"]):
            raise RivalsError(
                f"The run {folder.path} is damaged: the ticket of '{task['name']}' has another "
                "task or other classes than results.json."
            )
        found[ticket.task] = ticket
    return found


def _check_cut(
    path: Path, config: dict[str, Any], checkpoint: Checkpoint, tickets: dict[str, Ticket]
) -> str:
    """Every ticket must be what is cut out of the stored network, and answer as that does."""
    own = [config["method"], str(config["network"].get("architecture"))]
    if own[0] not in methods or own[1] not in networks:
        return "tickets not compared with their network: it is made by a module of your own"
    shape = next(iter(tickets.values())).input_shape
    method = restored(path, config, checkpoint, shape)
    for name, ticket in tickets.items():
        if name not in method.known or not _same(method.ticket(name), ticket.network):
            raise RivalsError(
                f"The run {path} is damaged: the ticket of '{name}' is not what is cut out of the "
                "network in its checkpoint."
            )
        if isinstance(method, TWTA):
            compare_with_masked(method, ticket)
    network = "its masked network" if isinstance(method, TWTA) else "its network"
    return f"every ticket equals what is cut out of {network}"


def _same(cut: torch.nn.Module, stored: torch.nn.Module) -> bool:
    first, second = cut.state_dict(), stored.state_dict()
    return describe(cut) == describe(stored) and all(  # type: ignore[arg-type]
        torch.allclose(first[key].cpu(), second[key], TOLERANCE, TOLERANCE) for key in first
    )
