"""Dropping one task of a model: nothing of it is left, and the others keep every bit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rivals.model import manifest, moved_edges
from rivals.model.folder import ModelFolder
from rivals.model.folder_writing import write_lock
from rivals.model.manifest import TaskFacts


def drop(path: str | Path, task: str) -> Dropped:
    """Take `task` out of the model; a kill at any moment leaves it in or out, never between.

    Edges that only this task used are untrained again; those that others use move to the earliest
    of them; its winners, norms, head and statistics are gone with its file. Tickets of the others
    keep every bit. Tasks that began with its weights are named: what they learned from it stays.
    """
    folder = Path(path)
    manifest.read(folder)  # before a folder is made for a model that is not there
    with write_lock(folder) as lock:
        model = ModelFolder.open(folder, lock=lock)
        gone = model.task(task)
        heirs = [each.name for each in model.tasks if gone.name in each.inherited_from]
        left = take_out(model, gone)
        made = model.commit(left, "drop", gone.name)
        freed = model.description.total_bytes() - made.description.total_bytes()
        return Dropped(gone.name, heirs, freed, made.room(), made.unsigned)


def take_out(model: ModelFolder, gone: TaskFacts) -> list[TaskFacts]:
    """Take a task out of a model in memory; returns the facts of the others."""
    network = model.method.network
    owned = moved_edges.owned(network, [each.name for each in model.tasks if each != gone])
    model.method.drop(gone.name)
    model.moved = moved_edges.gained(network, owned, model.moved)
    return [
        replace(each, inherited_from=tuple(n for n in each.inherited_from if n != gone.name))
        for each in model.tasks
        if each != gone
    ]


def forget(model: ModelFolder, task: str) -> None:
    """Take a task out of a model in memory, to learn another in its place before it is written."""
    gone = model.task(task)
    place, history = model.tasks.index(gone), model.description.history
    left = take_out(model, gone)
    if history is not None:
        history = history.add("drop", place=place)
    model.description = replace(model.description, tasks=tuple(left), history=history)


@dataclass(frozen=True)
class Dropped:
    """What was taken out, and which tasks inherited from it."""

    task: str
    heirs: list[str]
    freed: int  # bytes on disk
    room: dict[str, float]  # share of edges that are free, by layer
    unsigned: bool = False  # whether the model was signed, which it is no longer

    def to_dict(self) -> dict[str, Any]:
        return {"event": "dropped", **vars(self)}
