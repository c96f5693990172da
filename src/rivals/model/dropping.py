"""Taking a task out, exactly.

Edges that only this task used are untrained again; those that others use move to the earliest of
them; its winners, norms, head and statistics are gone with its file. Tickets of the others keep
every bit. Tasks that began with its weights are named: what they learned from it stays in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rivals.model import manifest as description
from rivals.model.folder import Model, writing


@dataclass(frozen=True)
class Dropped:
    """What was taken out, and who inherited from it."""

    task: str
    heirs: list[str]
    freed: int  # bytes on disk
    room: dict[str, float]  # share of edges that are free, by layer

    def to_dict(self) -> dict[str, Any]:
        return {"event": "dropped", **vars(self)}


def drop(model_path: str | Path, task: str) -> Dropped:
    """Take `task` out of the model; a kill at any moment leaves it in or out, never between."""
    path = Path(model_path)
    description.read(path)  # before a folder is made for a model that is not there
    with writing(path):
        model = Model.open(path)
        gone = model.task(task)
        task = gone.name
        heirs = [each.name for each in model.tasks if task in each.inherited_from]
        before = sum(each.bytes for each in model.tasks)
        model.method.drop(task)
        left = [
            replace(each, inherited_from=tuple(n for n in each.inherited_from if n != task))
            for each in model.tasks
            if each != gone
        ]
        made = model.commit(left)
        freed = before - sum(each.bytes for each in made.tasks)
        return Dropped(task, heirs, freed, made.room())
