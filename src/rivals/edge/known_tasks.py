"""All that a model folder holds, read without torch: its tasks, and what they answer with.

closed form   kept.prior      sums of the ancestor's features; the head follows from them
direct        direct.weight   a head on small pixels or on edges of the picture
units         rivals0.…       a network of its own edges and those of others (owned_edges.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.edge.array_file import Arrays, arrays_of, below
from rivals.edge.choosing import stored_head
from rivals.edge.direct_inputs import READERS, direct_widths
from rivals.edge.frozen_ancestor import FrozenAncestor, ancestor_of
from rivals.edge.frozen_body import NORM, FrozenBody
from rivals.edge.owned_edges import EdgeOwners, Moved, Wired, read_edges, winners_of, wired
from rivals.model import limits
from rivals.model.manifest import Description, TaskFacts, damaged
from rivals.model.stored_file import Shapes, check_version, in_words, read_stored, shapes_of
from rivals.naming.class_sums import (
    DIRECTIONS,
    LEVELS,
    Array,
    LinearHead,
)
from rivals.naming.joint_head import JointHead
from rivals.naming.task_statistics import TaskStatistics, check_statistics, stored_statistics
from rivals.streams.preprocessing import Preprocessing

CLOSED_FORM, DIRECT, UNITS = "closed form", "direct", "units"


@dataclass(frozen=True)
class StoredTask:
    """A task as its file has it."""

    facts: TaskFacts
    arrays: Arrays

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def classes(self) -> tuple[str, ...]:
        return self.facts.classes

    @property
    def kept(self) -> Arrays:
        """Sums of the ancestor's features; in closed form with prior and scale."""
        return below(self.arrays, "kept.")

    @property
    def kind(self) -> str:
        return kind_of(self.arrays)


def kind_of(names: Any) -> str:
    """How a task was learned, by the names in its file."""
    if "kept.prior" in names:
        return CLOSED_FORM
    return DIRECT if "direct.weight" in names else UNITS


class KnownTasks:
    """What lies in a model's folder; every part is read when it is first needed."""

    def __init__(self, path: Path, content: Description) -> None:
        self.path, self.content = path, content

    # The network -------------------------------------------------------------------------------

    @cached_property
    def ancestor(self) -> FrozenAncestor:
        return ancestor_of(self.path, self.content)

    @property
    def within(self) -> Array:
        return self.ancestor.within

    @property
    def channels(self) -> int:
        return self.content.input_shape[0]

    @cached_property
    def preparation(self) -> Preprocessing:
        return self.ancestor.preparation(self.channels)

    @cached_property
    def body(self) -> FrozenBody:
        return self.ancestor.body(self.channels)

    @cached_property
    def layers(self) -> list[Wired]:
        return wired(self.ancestor.widths, self.channels)

    @property
    def rival_sets(self) -> list[int]:
        """The blocks of every set of rivals."""
        blocks = {each.rows: each.shape[0] for each in self.layers}
        return [blocks[number] for number in sorted(blocks)]

    # The tasks ---------------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> list[StoredTask]:
        return [self.read(facts) for facts in self.content.tasks]

    def read(self, facts: TaskFacts) -> StoredTask:
        """A task whose file has the types and shapes that the network needs."""
        what = f"the file of '{facts.name}'"
        if facts.bytes > self._largest(len(facts.classes)):
            raise damaged(self.path, f"{what} is larger than its network allows")
        data = read_stored(self.path, facts.file, facts.sha256, facts.bytes, what)
        with in_words(self.path, what):
            shapes = shapes_of(data)
            check_version(self.path, facts.name, shapes)
            self._check(shapes, len(facts.classes))
            task = StoredTask(facts, arrays_of(data))
            check_statistics(task.kept)
        return task

    def kind(self, facts: TaskFacts) -> str:
        """How a task was learned, in whatever network."""
        what = f"the file of '{facts.name}'"
        data = read_stored(self.path, facts.file, facts.sha256, facts.bytes, what)
        with in_words(self.path, what):
            return kind_of(shapes_of(data))

    def _largest(self, classes: int) -> int:
        """The most bytes that the file of a task with so many classes can have."""
        width = self.ancestor.widths[-1]
        most = max(width, *direct_widths(self.content.input_shape))
        numbers = classes * (3 * most + 3) + most * (DIRECTIONS + 1) + width * (width + 1)
        numbers += sum(r * (c * taps + 6) for r, c, taps in (each.shape for each in self.layers))
        return 8 + limits.HEADER + 4 * (numbers + 2 * LEVELS + 10)

    def _check(self, found: Shapes, classes: int) -> None:
        width, kind = self.ancestor.widths[-1], kind_of(found)
        wanted: Shapes = stored_statistics(width, classes, found, self.ancestor.space.rooted)
        wanted["levels"] = "F32", (LEVELS,)
        if kind != CLOSED_FORM:
            head, end = "head.", width
            if kind == DIRECT:
                shape = found["direct.weight"][1]
                head, end = "direct.", shape[1] if len(shape) == 3 else 0
                if end not in direct_widths(self.content.input_shape):
                    raise ValueError("does not fit its network at direct.weight")
            along = min(DIRECTIONS, end - 1)
            wanted |= {
                f"{head}weight": ("F32", (classes, end, 1)), f"{head}bias": ("F32", (classes,)),
                "features.means": ("F32", (classes, end)),
                "features.directions": ("F32", (end, along)),
                "features.variances": ("F32", (along,)), "features.rest": ("F32", (1,)),
            }  # fmt: skip
        if kind == UNITS:
            for number, layer in enumerate(self.layers):
                rows, columns, taps = layer.shape
                wanted |= {f"layer{number}.norm.{name}": ("F32", (rows,)) for name in NORM}
                wanted[f"layer{number}.norm.batches"] = "F32", ()
                name = f"layer{number}.claimed"
                dtype, shape = found.get(name, ("", ()))
                fits = (
                    dtype in ("F16", "F32") and len(shape) == 2 and 0 <= shape[0] <= rows * columns
                )
                wanted[name] = dtype if fits else "F16", (shape[0] if fits else -1, taps)
            for name in found:
                if name.startswith("rivals") and name.count(".") == 2:  # winners_of looks closer
                    wanted[name] = found[name]
        differing = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
        if differing:
            raise ValueError(f"does not fit its network at {differing[0][:80]}")

    # Units -------------------------------------------------------------------------------------

    @cached_property
    def with_units(self) -> dict[str, Arrays]:
        """The tasks that have units of their own."""
        return {each.name: each.arrays for each in self.tasks if each.kind == UNITS}

    @cached_property
    def edges(self) -> EdgeOwners:
        winners = {}
        for name, arrays in self.with_units.items():
            with in_words(self.path, f"the file of '{name}'"):
                winners[name] = winners_of(arrays, self.rival_sets, self.content.units)
        return EdgeOwners(self.layers, winners)

    @cached_property
    def moved(self) -> Moved:
        """Edges that a drop took from a task and gave to others."""
        arrays = self.moved_arrays()
        if not arrays:
            return {}
        with in_words(self.path, "the file of moved edges"):
            try:
                return read_edges(arrays, self.layers, [each.name for each in self.content.tasks])
            except (LookupError, TypeError, OverflowError) as error:
                raise ValueError("does not fit its network") from error

    def moved_arrays(self) -> Arrays:
        """The file of these edges, in whatever network; nothing where there is none."""
        stored = self.content.moved
        if stored is None:
            return {}
        what = "the file of moved edges"
        data = read_stored(self.path, stored.file, stored.sha256, stored.bytes, what)
        with in_words(self.path, what):
            return arrays_of(data)

    def own_body(self, task: StoredTask) -> FrozenBody:
        """The ticket of a task with units, but for its head."""
        ancestor = self.ancestor
        with in_words(self.path, f"the file of '{task.name}'"):
            weights = [
                self.edges.ticket(task.name, number, self.with_units, self.moved, own)
                for number, own in enumerate(ancestor.weights(self.channels))
            ]
        norms = [below(task.arrays, f"layer{n}.norm.") for n in range(len(self.layers))]
        return FrozenBody(ancestor.widths, weights, norms)

    @cached_property
    def readers(self) -> list[TaskReader]:
        """All tasks, ready to answer."""
        return [TaskReader(self, each) for each in self.tasks]

    @cached_property
    def naming(self) -> JointHead:
        """What names the tasks of pictures."""
        space = self.ancestor.space
        return JointHead.of([TaskStatistics.from_stored(e.kept, space) for e in self.tasks], space)

    def inputs(self, images: NDArray[np.uint8]) -> PictureInputs:
        return PictureInputs(self, self.preparation.arrays(images))


class PictureInputs:
    """Prepared pictures, and what is read of them, computed once for all tasks."""

    def __init__(self, known: KnownTasks, prepared: NDArray[np.float32]) -> None:
        self.known, self.prepared = known, prepared
        self._found: dict[str, Array] = {}

    @property
    def features(self) -> Array:
        """Of the ancestor: (n, d)."""
        if "" not in self._found:
            self._found[""] = self.known.body(self.prepared)
        return self._found[""]

    def direct(self, kind: str) -> Array:
        """Small pixels, or edges: (n, d)."""
        if kind not in self._found:
            self._found[kind] = READERS[kind](self.prepared)
        return self._found[kind]


class TaskReader:
    """A task that answers: what its head reads, and the head."""

    def __init__(self, known: KnownTasks, task: StoredTask) -> None:
        self.known, self.task, self.classes = known, task, task.classes
        self.kind = task.kind
        self.arrays = task.arrays
        self.width = known.ancestor.widths[-1]
        if self.kind == DIRECT:
            self.width = task.arrays["direct.weight"].shape[1]

    @cached_property
    def body(self) -> FrozenBody:
        return self.known.own_body(self.task)

    def features(self, inputs: PictureInputs) -> Array:
        """What the head reads of pictures: (n, d)."""
        if self.kind == DIRECT:
            return inputs.direct(direct_widths(self.known.content.input_shape)[self.width])
        return inputs.features if self.kind == CLOSED_FORM else self.body(inputs.prepared)

    @cached_property
    def head(self) -> LinearHead:
        if self.kind == CLOSED_FORM:
            return stored_head(self.task.kept, self.known.within)
        prefix = "direct." if self.kind == DIRECT else "head."
        return self.arrays[f"{prefix}weight"][..., 0], self.arrays[f"{prefix}bias"]
