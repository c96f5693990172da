"""Edges that moved: a dropped task owned them, and the earliest task that uses them owns them now.

Their values are written to a file of their own, so that dropping a task writes little and changes
no file of another task. The next lesson writes them into the files of their new owners.

    layer<n>.owners   (owners,)       the places of the owners in the list of tasks, ascending
    layer<n>.cells    bytes           for each owner the cells that it got, a bit each, compressed
    layer<n>.values   (edges, taps)   owner by owner, as the claims keep them
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from rivals.nn.rival_network import RivalNetwork
from rivals.nn.shared_weight import KEPT
from rivals.nn.twta_layers import TWTALayer

PLACE = torch.int16  # of an owner
INDEX = 1  # bytes of an edge beside its values, about
Cells = dict[str, dict[int, Tensor]]  # by owner and number of the layer: (edges,) cells, ascending
Owned = dict[str, list[Tensor]]  # by task, for every layer: (row blocks, column blocks) bool


def owned(network: RivalNetwork, tasks: Iterable[str]) -> Owned:
    """Which cells every task owns, as a copy."""
    return {
        task: [layer.weight.claims[task].first.clone() for layer in network.layers_of(task)]
        for task in tasks
    }


def gained(network: RivalNetwork, before: Owned, moved: Cells) -> Cells:
    """Cells whose owner has no file that holds them: those in `moved`, and those gained since."""
    found: Cells = {}
    for task, tables in before.items():
        for number, (layer, had) in enumerate(zip(network.layers_of(task), tables, strict=True)):
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
        owners = [task for task in tasks if number in moved.get(task, {})]
        bits, values = [], [torch.zeros(0, layer.weight.taps, dtype=KEPT)]
        for task in owners:
            mine = moved[task][number]
            mask = np.zeros(cell_count(layer), np.uint8)
            mask[mine.numpy()] = 1
            bits.append(np.packbits(mask).tobytes())
            rank = layer.weight.claims[task].first.flatten().cpu().cumsum(0) - 1
            values.append(layer.weight.owned(task).cpu()[rank[mine]])
        places = [tasks.index(task) for task in owners]
        packed = np.frombuffer(zlib.compress(b"".join(bits), 9), np.uint8)
        tensors[f"layer{number}.owners"] = torch.tensor(places, dtype=PLACE)
        tensors[f"layer{number}.cells"] = torch.from_numpy(packed.copy())
        tensors[f"layer{number}.values"] = torch.cat(values)
    return tensors


def cell_count(layer: TWTALayer) -> int:
    """The edges that a ticket has in a layer."""
    return layer.rivals.blocks * (layer.source.blocks if layer.source else layer.weight.columns)


class StoredEdges:
    """The content of the file, and its way back into the claims. ValueError if they do not fit."""

    def __init__(self, network: RivalNetwork, tensors: dict[str, Tensor], tasks: list[str]) -> None:
        self.cells: Cells = {}
        self.values: dict[str, dict[int, Tensor]] = {}
        for number, layer in enumerate(network.layers() if tensors else []):
            places = tensors[f"layer{number}.owners"].tolist()
            values = tensors[f"layer{number}.values"]
            if places != sorted(set(places)) or not all(0 <= n < len(tasks) for n in places):
                raise ValueError("owners that are not there")
            count = cell_count(layer)
            each = (count + 7) // 8
            packed = bytes(tensors[f"layer{number}.cells"].numpy())
            stream = zlib.decompressobj()
            data = stream.decompress(packed, len(places) * each + 1)  # not more, whatever it holds
            if len(data) != len(places) * each or not stream.eof or stream.unused_data:
                raise ValueError("cells that are not there")
            rows = np.frombuffer(data, np.uint8).reshape(len(places), each)
            for place, bits in zip(places, rows, strict=True):
                mine = torch.from_numpy(np.flatnonzero(np.unpackbits(bits, count=count)))
                self.cells.setdefault(tasks[place], {})[number] = mine
                self.values.setdefault(tasks[place], {})[number] = values[: len(mine)]
                values = values[len(mine) :]
                if len(self.values[tasks[place]][number]) != len(mine):
                    raise ValueError("too few values")
            if len(values):
                raise ValueError("too many values")

    def merge(
        self, network: RivalNetwork, task: str, tensors: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """The tensors of `task`, whose winners are known, with the edges that moved to it."""
        merged = dict(tensors)
        for number, cells in self.cells.get(task, {}).items():
            layer, name = network.layers()[number], f"layer{number}.claimed"
            first = layer.weight.free(layer.rivals.winner_ids(task), layer.ticket_columns(task))
            first = first.flatten().cpu()
            moved = torch.zeros_like(first)
            moved[cells] = True
            if bool((moved & ~first).any()) or int((first & ~moved).sum()) != len(tensors[name]):
                raise ValueError("edges that do not fit")
            whole = torch.zeros(len(first), layer.weight.taps, dtype=KEPT)
            whole[first & ~moved] = tensors[name].cpu().to(KEPT)
            whole[moved] = self.values[task][number]
            merged[name] = whole[first].to(tensors[name].device)
        return merged


def largest(network: RivalNetwork, moved: Cells) -> int:
    """Bytes, about, that moving the edges in one task's file takes: of the largest such file."""
    each: dict[str, int] = {}
    for number, layer in enumerate(network.layers()):
        size = layer.weight.taps * KEPT.itemsize + INDEX
        for task, claim in layer.weight.claims.items():
            known = len(moved.get(task, {}).get(number, ()))
            each[task] = each.get(task, 0) + size * (int(claim.first.sum()) - known)
    return max(each.values(), default=0)
