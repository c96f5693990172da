"""Tasks with units of their own, without torch: who owns which edge, and the ticket of such a task.

A task owns the edges that it was the first to use, in the order of the tasks (glossary). So owners
follow from the winners. The file of a task has the values of its edges, but for those that moved to
it from a dropped task, which lie in a file of their own (rivals/model/moved_edges.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.edge.array_file import Arrays
from rivals.edge.frozen_body import TAPS

Mask = NDArray[np.bool_]
Moved = dict[str, dict[int, Arrays]]  # by owner and number of the layer: its cells and their values


@dataclass(frozen=True)
class Wired:
    """A layer: the sets of rivals of its rows and columns, and how many edges a ticket has."""

    rows: int
    columns: int | None  # None: it reads the picture
    shape: tuple[int, int, int]  # row blocks, column blocks or channels, taps


def wired(widths: Sequence[int], channels: int) -> list[Wired]:
    """The layers of `conv-residual`, whose stages share one set of rivals: rivals/nn/resnet.py."""
    first, *pairs, last = widths
    layers = [Wired(0, None, (first, channels, TAPS))]
    sets, present, source, before = 1, 0, 0, first
    for stage, inner in zip(pairs[::2], pairs[1::2], strict=True):
        if stage != present:
            layers.append(Wired(sets, source, (stage, before, TAPS)))
            present = before = stage
            source, sets = sets, sets + 1
        layers.append(Wired(sets, source, (inner, stage, TAPS)))
        layers.append(Wired(source, sets, (stage, inner, TAPS)))
        sets += 1
    return [*layers, Wired(sets, source, (last, before, 1))]


def winners_of(arrays: Arrays, sets: Sequence[int], units: Sequence[int]) -> list[NDArray[Any]]:
    """The units that won a task, set after set; a ValueError is damage."""
    found = []
    for number, blocks in enumerate(sets):
        prefix = f"rivals{number}.winners."
        names = [name for name in arrays if name.startswith(prefix)]
        bits = int(names[0].removeprefix(prefix)) if len(names) == 1 else 0
        packed = arrays[names[0]] if names else np.empty(0, np.uint8)
        if not 1 <= bits <= 32 or packed.dtype != np.uint8 or len(packed) * 8 < blocks * bits:
            raise ValueError(f"does not fit its network at {prefix[:-1]}")
        digits = np.unpackbits(packed, count=blocks * bits).reshape(blocks, bits)
        won = (digits.astype(np.int64) << np.arange(bits)).sum(1)
        if int(won.max()) >= units[number]:
            raise ValueError(f"names unit {int(won.max())} of {units[number]}")
        found.append(won)
    return found


class EdgeOwners:
    """All tasks of a model that have units, in their order.

    Args:
        layers: Of the network.
        winners: Of every such task, set after set.
    """

    def __init__(
        self, layers: Sequence[Wired], winners: Mapping[str, Sequence[NDArray[Any]]]
    ) -> None:
        self.layers, self.winners = layers, dict(winners)

    def without(self, task: str) -> EdgeOwners:
        rest = {name: each for name, each in self.winners.items() if name != task}
        return EdgeOwners(self.layers, rest)

    def same(self, one: str, other: str, number: int) -> Mask:
        """Which cells of a layer two tasks both use: (row blocks, column blocks)."""
        return self._same(self.winners[one], self.winners[other], number)

    def of_ancestor(self, task: str, number: int) -> Mask:
        """Which cells of a task are the ancestor's, unit 0 of every block."""
        mine = self.winners[task]
        return self._same(mine, [np.zeros_like(each) for each in mine], number)

    def _same(
        self, one: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]], number: int
    ) -> Mask:
        layer = self.layers[number]
        rows = one[layer.rows] == other[layer.rows]
        columns = np.ones(layer.shape[1], bool)
        if layer.columns is not None:
            columns = one[layer.columns] == other[layer.columns]
        found: Mask = rows[:, None] & columns[None]
        return found

    def owned(self, task: str, number: int) -> Mask:
        """Which cells of a layer a task was the first to use."""
        found = ~self.of_ancestor(task, number)
        for name in self.winners:
            if name == task:
                break
            found &= ~self.same(task, name, number)
        return found

    def values(self, task: str, number: int, arrays: Arrays, moved: Moved) -> NDArray[Any]:
        """The values of a layer that a task owns, where it does: (row blocks, columns, taps)."""
        mine, claimed = self.owned(task, number).ravel(), arrays[f"layer{number}.claimed"]
        rows, columns, taps = self.layers[number].shape
        there = moved.get(task, {}).get(number)
        apart = np.zeros_like(mine)
        if there:
            apart[there["cells"]] = True
        if (apart & ~mine).any() or claimed.shape != (int((mine & ~apart).sum()), taps):
            raise ValueError(f"does not fit its network at layer{number}.claimed")
        whole = np.zeros((len(mine), taps), np.float16)
        whole[mine & ~apart] = claimed
        if there:
            whole[there["cells"]] = there["values"]
        return whole.reshape(rows, columns, taps)

    def ticket(
        self, task: str, number: int, tasks: Mapping[str, Arrays], moved: Moved,
        ancestor: NDArray[Any],
    ) -> NDArray[np.float32]:  # fmt: skip
        """The weights of a layer of a ticket, whoever owns them."""
        found = np.where(self.of_ancestor(task, number)[..., None], ancestor, np.float32(0))
        missing = ~self.of_ancestor(task, number)
        for name in self.winners:
            if name != task:
                shared = self.same(task, name, number) & self.owned(name, number) & missing
            else:
                shared = missing
            if shared.any():
                found[shared] = self.values(name, number, tasks[name], moved)[shared]
                missing &= ~shared
            if name == task:
                break
        return found.astype(np.float32)


# The file of edges that moved ---------------------------------------------------------------------


def read_edges(arrays: Arrays, layers: Sequence[Wired], tasks: Sequence[str]) -> Moved:
    """The content of the file; a ValueError is its damage."""
    moved: Moved = {}
    for number, layer in enumerate(layers):
        rows, columns, taps = layer.shape
        places = arrays[f"layer{number}.owners"].tolist()
        values, count = arrays[f"layer{number}.values"], rows * columns
        if places != sorted(set(places)) or not all(0 <= n < len(tasks) for n in places):
            raise ValueError("has owners that are not there")
        each, stream = (count + 7) // 8, zlib.decompressobj()
        try:
            data = stream.decompress(
                arrays[f"layer{number}.cells"].tobytes(), len(places) * each + 1
            )
        except zlib.error as error:
            raise ValueError("has cells that are not there") from error
        if len(data) != len(places) * each or not stream.eof or stream.unused_data:
            raise ValueError("has cells that are not there")
        bits = np.frombuffer(data, np.uint8).reshape(len(places), each)
        for place, row in zip(places, bits, strict=True):
            cells = np.flatnonzero(np.unpackbits(row, count=count))
            mine, values = values[: len(cells)], values[len(cells) :]
            if mine.shape != (len(cells), taps):
                raise ValueError("has too few values")
            moved.setdefault(tasks[place], {})[number] = {"cells": cells, "values": mine}
        if len(values):
            raise ValueError("has too many values")
    return moved


def write_edges(moved: Moved, layers: Sequence[Wired], tasks: Sequence[str]) -> Arrays:
    """The arrays of the file."""
    arrays: Arrays = {}
    for number, layer in enumerate(layers):
        rows, columns, taps = layer.shape
        owners = [name for name in tasks if number in moved.get(name, {})]
        bits, values = [], [np.zeros((0, taps), np.float16)]
        for name in owners:
            mask = np.zeros(rows * columns, np.uint8)
            mask[moved[name][number]["cells"]] = 1
            bits.append(np.packbits(mask).tobytes())
            values.append(moved[name][number]["values"])
        packed = np.frombuffer(zlib.compress(b"".join(bits), 9), np.uint8)
        places = [list(tasks).index(name) for name in owners]
        arrays[f"layer{number}.owners"] = np.array(places, np.int16)
        arrays[f"layer{number}.cells"] = packed
        arrays[f"layer{number}.values"] = np.concatenate(values)
    return arrays


def moved_by_drop(edges: EdgeOwners, gone: str, tasks: Mapping[str, Arrays], moved: Moved) -> Moved:
    """Which edges lie in no file of their owners once a task is dropped, with their values."""
    after = edges.without(gone)
    found: Moved = {}
    for number in range(len(edges.layers)):
        values = edges.values(gone, number, tasks[gone], moved)
        flat = values.reshape(-1, values.shape[2])
        for name in after.winners:
            gained = (after.owned(name, number) & ~edges.owned(name, number)).ravel()
            whole = np.where(gained[:, None], flat, np.float16(0))
            had = moved.get(name, {}).get(number)
            if had:
                gained[had["cells"]] = True
                whole[had["cells"]] = had["values"]
            if gained.any():
                cells = np.flatnonzero(gained)
                found.setdefault(name, {})[number] = {"cells": cells, "values": whole[cells]}
    return found
