"""Where exemplars lie: one store for all, one a task or one a class; who stays when it is full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from rivals.baselines.memory.exemplar import Exemplar
from rivals.baselines.memory.exemplar_budget import Budget
from rivals.errors import RivalsError, unknown
from rivals.seeds import Seed

POLICIES = ("reservoir", "ring", "herding")
ALL = -1  # in a key: of every task, or of every label

Key = tuple[int, int]  # (task number, label): whose exemplars a store holds


class Stores:
    """Lists of exemplars, each with its room: a ring's oldest first, a herd's best first."""

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

    def emptied(self) -> Stores:
        """Stores of the same settings that hold nothing."""
        return Stores(self.budget, self.policy, self.seed, self.rings)

    def settings(self) -> dict[str, Any]:
        return {"policy": self.policy, "rings": self.rings, **vars(self.budget)}

    def key(self, task: int, label: int) -> Key:
        if self.policy == "reservoir" and not self.budget.per_class:
            return ALL, ALL
        return (task, ALL) if self.policy == "ring" and self.rings == "task" else (task, label)

    def know(self, task: int, size: int, classes: int) -> None:
        """A task's exemplars take `size` bytes each; a common store shrinks for larger ones."""
        self.sizes[task], self.classes[task] = size, classes
        try:
            self.admit([])
        except RivalsError:
            del self.sizes[task]  # as if never asked
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

    def admit(self, keys: Iterable[Key]) -> None:
        """Open stores for `keys`; the others give up what no longer fits."""
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
        # A uniform choice among a uniform sample is a uniform sample.
        seed = self.seed.child("shrink", *key, self.seen[key])
        left = torch.randperm(len(store), generator=seed.torch())[:room]
        return [store[i] for i in left.sort().values.tolist()]

    def offer(self, task: int, label: int, make: Callable[[], Exemplar]) -> None:
        """The next example of the stream; it is made only if it is kept."""
        key = self.key(task, label)
        if key not in self.held:
            self.admit([key])
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
        """From U{0 … count − 1}, a function of the seed and `count` alone: nothing to save.

        A child's 63 bits are scaled, which is uniform but for count / 2⁶³.
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
