"""Edges that moved: a dropped task owned them, and the earliest task that uses them owns them now.

Their values are written to a file of their own, so that dropping a task writes little and changes
no file of another task. The next lesson writes them into the files of their new owners.

    layer<n>.tasks    (edges,)        the place of the owner in the list of tasks
    layer<n>.cells    (edges,)        the cell in the owner's table: row block · columns + column
    layer<n>.values   (edges, taps)   as the claims keep them
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from rivals.nn.rival_network import RivalNetwork
from rivals.nn.shared_weight import KEPT

INDEX = 4 + 2  # bytes of an edge beside its values
TASK, CELL = torch.int16, torch.int32
Cells = dict[str, dict[int, Tensor]]  # by owner and number of the layer: (edges,) cells, ascending
Owned = dict[str, list[Tensor]]  # by task, for every layer: (row blocks, column blocks) bool


def owned(network: RivalNetwork, tasks: Iterable[str]) -> Owned:
    """Which cells every task owns, as a copy."""
    layers = network.layers()
    return {task: [layer.weight.claims[task].first.clone() for layer in layers] for task in tasks}


def gained(network: RivalNetwork, before: Owned, moved: Cells) -> Cells:
    """The cells that are not in the files of their owners: those in `moved`, and those since."""
    found: Cells = {}
    for task, tables in before.items():
        for number, (layer, had) in enumerate(zip(network.layers(), tables, strict=True)):
            new = (layer.weight.claims[task].first & ~had).flatten().cpu()
            if (cells := moved.get(task, {}).get(number)) is not None:
                new[cells] = True
            if bool(new.any()):
                found.setdefault(task, {})[number] = torch.nonzero(new).flatten()
    return found


def encode(network: RivalNetwork, tasks: list[str], moved: Cells) -> dict[str, Tensor]:
    """The tensors of the file."""
    tensors = {}
    for number, layer in enumerate(network.layers()):
        owners, cells, values = [], [], []
        for task, by_layer in moved.items():
            if (mine := by_layer.get(number)) is not None:
                rank = layer.weight.claims[task].first.flatten().cpu().cumsum(0) - 1
                owners.append(torch.full((len(mine),), tasks.index(task), dtype=TASK))
                cells.append(mine.to(CELL))
                values.append(layer.weight.owned(task).cpu()[rank[mine]])
        none = torch.zeros(0, layer.weight.taps, dtype=KEPT)
        tensors[f"layer{number}.tasks"] = torch.cat([torch.zeros(0, dtype=TASK), *owners])
        tensors[f"layer{number}.cells"] = torch.cat([torch.zeros(0, dtype=CELL), *cells])
        tensors[f"layer{number}.values"] = torch.cat([none, *values])
    return tensors


class StoredEdges:
    """The content of the file, and its way back into the claims."""

    def __init__(self, tensors: dict[str, Tensor], tasks: list[str]) -> None:
        self.tensors, self.tasks = tensors, tasks
        self.cells: Cells = {}
        for name, owners in tensors.items():
            if not name.endswith(".tasks"):
                continue
            layer = name.removesuffix(".tasks")
            for place in sorted(set(owners.tolist())):
                mine = tensors[f"{layer}.cells"][owners == place].long()
                if not 0 <= place < len(tasks) or not bool((mine.diff() > 0).all()):
                    raise ValueError("moved edges are not in order")
                number = int(layer.removeprefix("layer"))
                self.cells.setdefault(tasks[place], {})[number] = mine

    def merge(
        self, network: RivalNetwork, task: str, tensors: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """The tensors of `task`, whose winners are known, with the edges that moved to it."""
        merged, place = dict(tensors), self.tasks.index(task)
        for number, cells in self.cells.get(task, {}).items():
            layer, name = network.layers()[number], f"layer{number}.claimed"
            first = layer.weight.free(layer.rivals.winner_ids(task), layer.ticket_columns(task))
            first = first.flatten().cpu()
            moved = torch.zeros_like(first)
            moved[cells] = True  # an IndexError is damage, too
            if bool((moved & ~first).any()) or int((first & ~moved).sum()) != len(tensors[name]):
                raise ValueError("moved edges do not fit")
            whole = torch.zeros(len(first), layer.weight.taps, dtype=KEPT)
            whole[first & ~moved] = tensors[name].cpu().to(KEPT)
            mine = self.tensors[f"layer{number}.tasks"] == place
            whole[moved] = self.tensors[f"layer{number}.values"][mine]
            merged[name] = whole[first].to(tensors[name].device)
        return merged


def largest(network: RivalNetwork) -> int:
    """Bytes, about, that moving all edges of one task may take: of the task that owns the most."""
    each: dict[str, int] = {}
    for layer in network.layers():
        size = layer.weight.taps * KEPT.itemsize + INDEX
        for task, claim in layer.weight.claims.items():
            each[task] = each.get(task, 0) + size * int(claim.first.sum())
    return max(each.values(), default=0)
