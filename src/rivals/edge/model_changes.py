"""Changing a model folder without torch: a task is added, refined or taken out.

Each is one change of the folder: after a kill or a power cut the old model is there, or the new
one. Files of other tasks are never written. Edges that a dropped task owned and others use move
into a file of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rivals.edge.array_file import Arrays, encoded
from rivals.edge.known_tasks import CLOSED_FORM, UNITS, KnownTasks, kind_of
from rivals.edge.owned_edges import moved_by_drop, write_edges
from rivals.errors import RivalsError
from rivals.io.files import digest, write_bytes
from rivals.io.locks import FolderLock
from rivals.model import spare_space
from rivals.model.folder_writing import check_different, write_model
from rivals.model.history import ModelHistory
from rivals.model.manifest import Description, MovedEdges, TaskFacts, file_name
from rivals.model.ticket_mark import ticket_mark


@dataclass(frozen=True)
class ModelChange:
    """What a model will be, and the files that are not there yet: of a task, of moved edges."""

    known: KnownTasks  # what it was
    content: Description
    task: tuple[str, bytes] | None = None
    moved: tuple[str, bytes] | None = None

    @classmethod
    def none(cls, known: KnownTasks) -> ModelChange:
        return cls(known, known.content)

    @property
    def history(self) -> ModelHistory:
        if self.content.history is None:
            raise RivalsError(
                f"rivals 0.1 wrote the model {self.known.path}, and its history begins with the "
                "next lesson or drop by `rivals learn` or `rivals drop`; do one of them first."
            )
        return self.content.history

    def without(self, gone: TaskFacts) -> ModelChange:
        """Without a task."""
        known, tasks = self.known, self.content.tasks
        place = tasks.index(gone)
        arrays = self._moved_without(gone, place)
        left = tuple(
            replace(each, inherited_from=tuple(n for n in each.inherited_from if n != gone.name))
            for each in tasks
            if each != gone
        )
        history = self.history.add("drop", place=place)
        content = replace(self.content, tasks=left, history=history, moved=None)
        if not arrays:
            return ModelChange(known, content)
        data = encoded(gone.name, arrays)
        sha256 = digest(data)
        others = MovedEdges(file_name(sha256), sha256, len(data))
        return ModelChange(known, replace(content, moved=others), moved=(others.file, data))

    def _moved_without(self, gone: TaskFacts, place: int) -> Arrays:
        """The file of moved edges without that task; nothing where none is needed."""
        known, names = self.known, [each.name for each in self.content.tasks]
        names.remove(gone.name)
        others = [each for each in self.content.tasks if each != gone]
        if known.kind(gone) != UNITS:  # it owned nothing; places after it are one less
            arrays = known.moved_arrays()
            for name in [each for each in arrays if each.endswith(".owners")]:
                arrays[name] = arrays[name] - (arrays[name] > place)
            return arrays
        if all(known.kind(each) != UNITS for each in others):
            return {}
        moved = moved_by_drop(known.edges, gone.name, known.with_units, known.moved)
        return write_edges(moved, known.layers, names) if moved else {}

    def with_task(self, facts: TaskFacts, arrays: Arrays, place: int | None = None) -> ModelChange:
        """With a new task at the end, or with a known one at its place learned again."""
        data = encoded(facts.name, arrays)
        sha256 = digest(data)
        made = replace(facts, file=file_name(sha256), sha256=sha256, bytes=len(data))
        tasks = list(self.content.tasks)
        if place is None:
            tasks.append(made)
        else:
            tasks[place] = made
        check_different(tasks)
        mark = self._mark(facts, arrays)
        history = self.history.add("learn" if place is None else "refine", mark, place)
        units = self.content.units or (self.content.rivals,) * len(self.known.rival_sets)
        content = replace(self.content, tasks=tuple(tasks), history=history, units=units)
        return replace(self, content=content, task=(made.file, data))

    def _mark(self, facts: TaskFacts, arrays: Arrays) -> str:
        known, parts = self.known, dict(arrays)
        if kind_of(arrays) == CLOSED_FORM:  # its head follows from sums, its body is the ancestor's
            weights = known.ancestor.weights(known.channels)
            parts |= {f"layer{number}.weight": each for number, each in enumerate(weights)}
        named = self.content.ancestor
        own = known.preparation if named is not None and named.file else None
        return ticket_mark(self.content, facts.name, facts.classes, own, parts)

    def write(self, lock: FolderLock, dropping: bool) -> bool:
        """Write it; whether a signature was removed."""
        files = [each for each in (self.task, self.moved) if each is not None]

        def write_files(place: Path) -> Description:
            for name, data in files:
                write_bytes(place / name, data)
            return self.content

        path = self.known.path
        content, unsigned = write_model(path, lock, write_files, dropping)
        # Who drops a task with units writes at most what its file holds.
        most = max((each.bytes for each in content.tasks if each.steps), default=0)
        old = content.moved.bytes if content.moved else 0
        spare_space.keep(path, most + old, len(content.to_bytes()))
        return unsigned
