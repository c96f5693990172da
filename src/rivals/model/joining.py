"""Joining two models: a new one with the tasks of both, every ticket bit for bit.

    model A     ancestor   a₁  a₂            units that A's tasks won keep their numbers
    model B     ancestor   b₁  b₂            those of B's tasks move to numbers that A does not use
    joined      ancestor   a₁  a₂  b₁  b₂    the network grows where there are none

A ticket is made of edges that some task owns, so nothing of it comes from the seed. An edge of B
that leads to or from a moved unit is free in A; all others are the ancestor's, the same in both.
Within a block two units of B never move to one number, so what B's tasks share they share on.

The joined model is written beside its place, opened, and compared with both before it gets its
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from os.path import lexists
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rivals.errors import RivalsError, unknown
from rivals.io.files import make_folders, new_folder, write_bytes
from rivals.learn.model_twta import by_pixels
from rivals.model import limits, stored_file
from rivals.model.folder import ModelFolder
from rivals.model.folder_writing import write_lock
from rivals.model.manifest import Description, TaskFacts
from rivals.model.packing import in_place_of
from rivals.nn import task_tensors
from rivals.nn.blocks import RivalBlocks
from rivals.nn.rival_network import RivalNetwork
from rivals.streams import picture_source

Moves = list[Tensor]  # for each set of rivals (blocks, units of B): the new numbers of its units


@dataclass(frozen=True)
class Joined:
    """What came of joining two models."""

    path: Path
    tasks: tuple[str, ...]  # all of them
    added: tuple[str, ...]  # those of the other model
    same: tuple[str, ...]  # that both had, bit for bit: taken once
    grown: tuple[int, ...]  # units that the blocks of each layer gained
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


def join(first: Path, second: Path, out: Path, rename: Mapping[str, str] | None = None) -> Joined:
    """Write the model `out` with the tasks of two models; neither of them is changed.

    Args:
        first: The folder of a model. Its history goes on in the joined one.
        second: The folder of another, with the same network and the same ancestor.
        out: The folder of the joined model, a new one.
        rename: New names for tasks of the second.
    """
    if lexists(out):
        raise RivalsError(f"{out} is there already; choose another place, or remove it first.")
    mine, theirs = ModelFolder.open(first), ModelFolder.open(second)
    check_fit(mine, theirs)
    names = new_names(mine, theirs, dict(rename or {}))
    marks = {name: mine.mark(name, placed=False) for name in _names(mine)}
    marks |= {new: theirs.mark(old, placed=False) for old, new in names.items()}
    before = [rivals.units for rivals in mine.method.network.rivals()]
    added = add_tasks(mine, theirs, names)
    with new_folder(out) as made, in_place_of(made, out):
        with write_lock(made) as lock:
            model = mine.at(made, lock)
            keep_ancestor(mine, made)
            facts = [replace(each, file="", sha256="") for each in (*mine.tasks, *added)]
            model.commit(facts, "learn", *names.values())
        content = check_same(made, marks)
    after = [rivals.units for rivals in mine.method.network.rivals()]
    return Joined(
        out,
        tuple(marks),
        tuple(names.values()),
        tuple(name for name in _names(theirs) if name not in names),
        tuple(now - was for now, was in zip(after, before, strict=True)),
        content.total_bytes(),
    )


# What can be joined ------------------------------------------------------------------------------


def check_fit(mine: ModelFolder, theirs: ModelFolder) -> None:
    """Refuse models whose tickets cannot stand in one network."""
    for each in (mine, theirs):
        if not each.tasks:
            raise RivalsError(f"The model {each.path} has no tasks, so there is nothing to join.")
    one, other = (
        (each.ancestor.sha256, each.ancestor.timm) if each.ancestor else None
        for each in (mine.description, theirs.description)
    )
    if one != other:
        raise RivalsError(
            f"The models {mine.path} and {theirs.path} started from different ancestors "
            f"({_ancestor(mine)} and {_ancestor(theirs)}), so they cannot be joined; learn the "
            "tasks of one of them anew in the other."
        )
    old = [any(map(by_pixels, each.method.known.values())) for each in (mine, theirs)]
    if old[0] != old[1]:
        older, newer = (mine, theirs) if old[0] else (theirs, mine)
        raise RivalsError(
            f"The tasks of {older.path} are named by their pixels, as rivals 0.1 did, and those of "
            f"{newer.path} by the filter bank, so they cannot be joined; learn the tasks of "
            f"{older.path} anew."
        )
    if mine.description.sound != theirs.description.sound:
        raise RivalsError(
            f"The models {mine.path} and {theirs.path} read different things "
            f"({_reads(mine)}, and {_reads(theirs)}), so they cannot be joined; learn the tasks of "
            "one of them anew in the other."
        )
    shapes = [
        (each.network, each.widths, each.rivals, each.input_shape)
        for each in (mine.description, theirs.description)
    ]
    if shapes[0] != shapes[1]:
        raise RivalsError(
            f"The models {mine.path} and {theirs.path} have different networks "
            f"({_network(mine.description)}, and {_network(theirs.description)}), so they cannot "
            "be joined; learn the tasks of one of them anew in the other."
        )


def new_names(mine: ModelFolder, theirs: ModelFolder, rename: dict[str, str]) -> dict[str, str]:
    """What the tasks of the second model are called in the joined one; no task that both have.

    A task is the same in both if it has the same name and every bit is the same, as in two copies
    of a model that went on learning.
    """
    for old in rename:
        if old not in _names(theirs):
            raise unknown("task", old, _names(theirs))
    found: dict[str, str] = {}
    for task in theirs.tasks:
        new = picture_source.named(rename.get(task.name, task.name), "task")
        if new in found.values():
            raise RivalsError(
                f"Two tasks of {theirs.path} would be called '{new}'; give them different names "
                "with --rename."
            )
        if new in _names(mine):
            if new == task.name and mine.mark(new) == theirs.mark(new):
                continue
            raise RivalsError(
                f"Both models have a task '{new}', and they are different; give that of "
                f"{theirs.path} another name with --rename."
            )
        found[task.name] = new
    if not found:
        raise RivalsError(
            f"{mine.path} has all tasks of {theirs.path} already, bit for bit; there is nothing to "
            "join."
        )
    copies = {task.sha256: task.name for task in mine.tasks}
    for task in theirs.tasks:
        if task.name in found and task.sha256 in copies:
            raise RivalsError(
                f"The task '{task.name}' of {theirs.path} is '{copies[task.sha256]}' of "
                f"{mine.path} under another name; drop one of them first."
            )
    return found


def _names(model: ModelFolder) -> list[str]:
    return [task.name for task in model.tasks]


def _ancestor(model: ModelFolder) -> str:
    named = model.description.ancestor
    return f"'{named.name}' {named.sha256[:8]}" if named else "none"


def _reads(model: ModelFolder) -> str:
    sound = model.description.sound
    return f"sounds, {sound}" if sound else "pictures"


def _network(content: Description) -> str:
    widths = "-".join(map(str, content.widths))
    channels, height, width = content.input_shape
    return (
        f"{content.network} {widths or 'of its own widths'} with {content.rivals} units in a block "
        f"for {channels} × {height} × {width} pixels"
    )


# Units that move ---------------------------------------------------------------------------------


def add_tasks(mine: ModelFolder, theirs: ModelFolder, names: dict[str, str]) -> list[TaskFacts]:
    """Let the network of the first model learn tasks of the second by copying; their facts."""
    ours, old = mine.method, theirs.method
    moves = make_room(ours.network, old.network, names)
    added = []
    for task in theirs.tasks:
        if task.name not in names:
            continue
        name, record = names[task.name], old.known[task.name]
        if old.in_closed_form(task.name):
            ours.learn_in_closed_form(name, record)
        else:
            copy_task(ours.network, old.network, task.name, name, moves)
            ours.known[name], ours.facts[name] = record, {}
        mine.familiarity[name] = theirs.familiarity[task.name]
        older = tuple(names.get(each, each) for each in task.inherited_from)
        added.append(replace(task, name=name, inherited_from=older))
    return added


def make_room(ours: RivalNetwork, theirs: RivalNetwork, tasks: Iterable[str]) -> Moves:
    """Where the units of the second network go, the first having grown to have them."""
    tasks, moves = list(tasks), []
    for number, (mine, other) in enumerate(zip(ours.rivals(), theirs.rivals(), strict=True)):
        taken = used_units(mine, mine.winners)
        wanted = used_units(other, [task for task in tasks if task in other.winners])
        if ours.has_ancestor:
            wanted[:, 0] = False  # its unit is the same in both
        units = max(mine.units, int((taken.sum(1) + wanted.sum(1)).max()))
        if units > limits.UNITS or units * mine.blocks > limits.ALL_UNITS:
            raise RivalsError(
                f"The joined network would have {units:,} units in a block of layer {number}, more "
                "than are read again; drop tasks first, or keep two models."
            )
        move = torch.zeros(other.blocks, other.units, dtype=torch.long)
        for block in range(other.blocks):
            free = torch.ones(units, dtype=torch.bool)
            free[: mine.units] = ~taken[block]
            own = torch.nonzero(wanted[block]).flatten()
            move[block, own] = torch.nonzero(free).flatten()[: len(own)]
        moves.append(move)
        mine.units = units
    for layer in ours.layers():
        layer.fit()
    return moves


def used_units(rivals: RivalBlocks, tasks: Iterable[str]) -> Tensor:
    """Which units of each block won one of the tasks, or an ancestor: (blocks, units) bool."""
    used = torch.zeros(rivals.blocks, rivals.units, dtype=torch.bool)
    for task in tasks:
        used.scatter_(1, rivals.winners[task].cpu().unsqueeze(1), True)
    return used


def copy_task(ours: RivalNetwork, theirs: RivalNetwork, task: str, name: str, moves: Moves) -> None:
    """Give the first network a task of the second, its units moved."""
    tensors = task_tensors.task_tensors(theirs, task)
    for number, rivals in enumerate(theirs.rivals_of(task)):
        won = moves[number].gather(1, rivals.winners[task].unsqueeze(1)).squeeze(1)
        prefix = f"rivals{number}.winners."
        tensors = {key: t for key, t in tensors.items() if not key.startswith(prefix)}
        tensors |= task_tensors.winner_tensors(number, won)
    task_tensors.load_task(ours, name, tensors)
    ours.freeze(name)
    pairs = zip(ours.layers_of(name), theirs.layers_of(task), strict=True)
    for layer, source in pairs:
        rows, columns = layer.rivals.winner_ids(name), layer.ticket_columns(name)
        layer.weight.claim(name, rows, columns, theirs.ticket_slice(source, task))


# The new folder ----------------------------------------------------------------------------------


def keep_ancestor(model: ModelFolder, made: Path) -> None:
    """Copy the file of an ancestor that is not shipped."""
    named = model.description.ancestor
    if named and named.file:
        what = "the file of its ancestor"
        data = stored_file.read_stored(model.path, named.file, named.sha256, named.bytes or 0, what)
        make_folders(made / stored_file.FOLDER)
        write_bytes(made / stored_file.FOLDER / named.file, data)


def check_same(made: Path, marks: Mapping[str, str]) -> Description:
    """Compare the tickets of the joined model, as it was written, with those of the two."""
    model = ModelFolder.open(made)
    changed = [name for name, mark in marks.items() if model.mark(name, placed=False) != mark]
    if changed or _names(model) != list(marks):
        raise RivalsError(
            f"The joined model was not written, for its ticket of '{(changed or [''])[0]}' would "
            "differ from the one it was made of; please report this."
        )
    return model.description
