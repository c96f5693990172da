"""Where exemplars are stored, how many may be stored, and which ones stay when a store is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from rivals.baselines.memory.exemplar import Exemplar
from rivals.errors import RivalsError, unknown
from rivals.seeds import Seed
from rivals.settings import Settings

POLICIES = ("reservoir", "ring", "herding")
ALL = -1  # in a key: of every task, or of every label

Key = tuple[int, int]  # (task number, label): whose exemplars a store holds


@dataclass(frozen=True)
class Budget:
    """How much may be kept. Exactly one is given; bytes count pixels, labels and extra tensors."""

    per_class: int = 0  # the benchmarks use 10, Tiny-ImageNet 5
    total: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        given = [value for value in vars(self).values() if value != 0]
        if len(given) != 1 or given[0] < 0:
            raise RivalsError(
                f"The budget of a memory is per_class={self.per_class}, total={self.total}, "
                f"bytes={self.bytes}; give exactly one of the three, at least 1."
            )

    def __str__(self) -> str:
        if self.per_class:
            return f"{self.per_class} images per class"
        return f"{self.total} images" if self.total else f"{self.bytes} bytes"

    def whole(self, sizes: Sequence[int]) -> int:
        """Images in one common store, if an exemplar of each task seen so far takes `sizes` bytes.

        The largest counts, so the store holds any mixture of tasks.
        """
        return self._checked(self.total or self.bytes // max(sizes), max(sizes), "image")

    def share(self, sizes: Sequence[int], kind: str) -> int:
        """Images in each of several stores of equal length, whose exemplars take `sizes` bytes.

        Rounded down (m = K / classes), so the budget is never exceeded.
        """
        room = self.total // len(sizes) if self.total else self.bytes // sum(sizes)
        least = len(sizes) if self.total else sum(sizes)
        return self._checked(room, least, f"image for each {kind} seen so far ({len(sizes)})")

    def _checked(self, room: int, least: int, what: str) -> int:
        if room < 1:
            unit = "images" if self.total else "bytes"
            raise RivalsError(
                f"The memory's budget of {self} does not hold one {what}; "
                f"raise it to at least {least} {unit}."
            )
        return room


class MemorySettings(Settings):
    """How many exemplars a method keeps."""

    size: int = Field(10, ge=1, description="How much the memory holds, counted in `counted_in`.")
    counted_in: Literal["class", "images", "bytes"] = Field(
        "class",
        description="The unit of `size`: images of each class, images in all, or bytes in all.",
    )

    @property
    def budget(self) -> Budget:
        names = {"class": "per_class", "images": "total", "bytes": "bytes"}
        return Budget(**{names[self.counted_in]: self.size})


class ExemplarStores:
    """Lists of exemplars with a limited length: one for all, one per task or one per class.

    A ring has its oldest exemplar first, a herd its best.
    """

    def __init__(self, budget: Budget, policy: str, seed: Seed, rings: str) -> None:
        if policy not in POLICIES:
            raise unknown("memory policy", policy, POLICIES)
        if rings not in ("class", "task"):
            raise RivalsError(f"rings is '{rings}'; use class or task.")
        self.budget, self.policy, self.seed, self.rings = budget, policy, seed, rings
        self.held: dict[Key, list[Exemplar]] = {}
        self.rooms: dict[Key, int] = {}
        self.seen: dict[Key, int] = {}  # examples offered to each store
        self.sizes: dict[int, int] = {}  # bytes of one exemplar, by task number
        self.classes: dict[int, int] = {}  # by task number

    def __iter__(self) -> Iterator[Exemplar]:
        for store in self.held.values():
            yield from store

    def emptied(self) -> ExemplarStores:
        """Stores with the same settings that hold nothing."""
        return ExemplarStores(self.budget, self.policy, self.seed, self.rings)

    def settings(self) -> dict[str, Any]:
        return {"policy": self.policy, "rings": self.rings, **vars(self.budget)}

    def key(self, task: int, label: int) -> Key:
        if self.policy == "reservoir" and not self.budget.per_class:
            return ALL, ALL
        return (task, ALL) if self.policy == "ring" and self.rings == "task" else (task, label)

    def add_task(self, task: int, size: int, classes: int) -> None:
        """A task whose exemplars take `size` bytes each; a common store shrinks for larger ones."""
        self.sizes[task], self.classes[task] = size, classes
        try:
            self.add_stores([])
        except RivalsError:
            del self.sizes[task]  # as before the call
            raise

    def share(self, keys: Iterable[Key]) -> dict[Key, int]:
        """How many images each store may hold if `keys` are the stores."""
        keys = list(keys)
        if self.budget.per_class:
            each = self.budget.per_class
            return {k: each * (self.classes[k[0]] if k[1] == ALL else 1) for k in keys}
        if (ALL, ALL) in keys:
            return {(ALL, ALL): self.budget.whole(list(self.sizes.values()))}
        kind = self.rings if self.policy == "ring" else "class"
        room = self.budget.share([self.sizes[task] for task, _ in keys], kind) if keys else 0
        return dict.fromkeys(keys, room)

    def add_stores(self, keys: Iterable[Key]) -> None:
        """Open stores for `keys`; the others drop what no longer fits."""
        keys = list(keys)
        self.rooms = self.share([*self.held, *keys])
        for key, store in self.held.items():
            self.held[key] = self._shortened(key, store, self.rooms[key])
        self.held.update({key: [] for key in keys})

    def _shortened(self, key: Key, store: list[Exemplar], room: int) -> list[Exemplar]:
        if len(store) <= room:
            return store
        if self.policy == "ring":
            return store[-room:]
        if self.policy == "herding":
            return store[:room]
        # A uniform choice from a uniform sample is a uniform sample.
        seed = self.seed.child("shrink", *key, self.seen[key])
        left = torch.randperm(len(store), generator=seed.torch())[:room]
        return [store[i] for i in left.sort().values.tolist()]

    def offer(self, task: int, label: int, make: Callable[[], Exemplar]) -> None:
        """The next example of the stream; `make` is called only if it is kept."""
        key = self.key(task, label)
        if key not in self.held:
            self.add_stores([key])
        count = self.seen[key] = self.seen.get(key, 0) + 1
        store, room = self.held[key], self.rooms[key]
        if len(store) < room:
            store.append(make())
        elif self.policy == "ring":
            del store[0]
            store.append(make())
        elif (place := self._draw(key, count)) < room:
            store[place] = make()

    def _draw(self, key: Key, count: int) -> int:
        """A random number from 0 to count − 1, which follows from the seed: nothing to save.

        The 63 bits of a child seed are scaled; the error of its probabilities is count / 2⁶³.
        """
        return (self.seed.child("reservoir", *key, count).value * count) >> 63

    def by_task(self, count: int) -> list[list[Exemplar]]:
        """Exemplars of the tasks 0 … count − 1, store after store."""
        found: list[list[Exemplar]] = [[] for _ in range(count)]
        for item in self:
            found[item.task].append(item)
        return found

    def restore(self, items: Iterable[Exemplar], seen: dict[Key, int]) -> None:
        """Take back what iterating gave; sizes and classes must be known."""
        self.held, self.seen = {}, seen
        for item in items:
            self.held.setdefault(self.key(item.task, item.label), []).append(item)
        self.rooms = self.share(self.held)
