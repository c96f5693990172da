"""A method that has many tasks, quickly: random tickets are claimed instead of learned."""

from __future__ import annotations

from dataclasses import replace

import torch

from rivals.learn.method import Method
from rivals.learn.twta import TWTA
from rivals.naming.task_record import TaskRecord
from rivals.nn.rival_network import RivalNetwork
from rivals.streams.task import Task


def store(method: Method, task: Task, count: int) -> None:
    """Claim `count` more random tickets, with classes as `task` has them."""
    assert isinstance(method, TWTA)
    generator = torch.Generator().manual_seed(len(method.known))
    for _ in range(count):
        name = f"stored-{len(method.known) + 1}"
        claim(method.network, name, len(task.classes), generator)
        method.known[name] = TaskRecord(task.classes, task.preprocessing)
        method.keep(replace(task, name=name))
        method.facts[name] = {}


def claim(network: RivalNetwork, name: str, classes: int, generator: torch.Generator) -> None:
    """A random winner in every block; edges that no task used keep their untrained values."""
    for rivals in network.rivals():
        rivals.winners[name] = torch.randint(rivals.units, (rivals.blocks,), generator=generator)
    for layer in network.layers():
        rows, columns = layer.rivals.winner_ids(name), layer.ticket_columns(name)
        layer.weight.claim(name, rows, columns, layer.weight.read(rows, columns))
        layer.norm.begin(name, layer.rivals.blocks)
    network.add_head(name, classes, network.end.blocks if network.end else 0)
    network.freeze(name)
