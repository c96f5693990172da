"""Exemplars: a few examples of each task that a replay method keeps, within a budget.

    reservoir   a uniform sample of all examples seen (Vitter 1985, Algorithm R); per class if the
                budget is per class
    ring        the newest examples of each class, or of each task (GEM)
    herding     those whose mean of features follows the class mean (iCaRL), best first

A batch never mixes tasks, since norms and heads belong to tasks: replay comes task by task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rivals.errors import RivalsError, unknown
from rivals.memory.budget import Budget
from rivals.memory.features import BATCH, Features, compute
from rivals.memory.herding import herding
from rivals.memory.kept import LABEL_BYTES, Exemplar, Origin, Replay, layout_of
from rivals.seeds import Seed
from rivals.tasks import Batch, Examples, Task

if TYPE_CHECKING:
    from rivals.methods.state import Part

POLICIES = ("reservoir", "ring", "herding")
ALL = -1  # in a store's key: every task, or every label

Key = tuple[int, int]  # (task number, label): whose exemplars a store holds


class ExemplarMemory:
    """Stores of exemplars: one in all, one a task, or one a class, as policy and budget ask."""

    def __init__(self, budget: Budget, policy: str, seed: Seed, rings: str = "class") -> None:
        if policy not in POLICIES:
            raise unknown("memory policy", policy, POLICIES)
        if rings not in ("class", "task"):
            raise RivalsError(f"rings is '{rings}'; use class or task.")
        self.budget, self.policy, self.seed, self.rings = budget, policy, seed, rings
        self.origins: list[Origin] = []
        self.stores: dict[Key, list[Exemplar]] = {}
        self.rooms: dict[Key, int] = {}  # images each store may hold
        self.seen: dict[Key, int] = {}  # examples offered to each store
        self.shape: tuple[int, ...] = ()  # (channels, height, width), of the first image

    def __len__(self) -> int:
        return sum(map(len, self.stores.values()))

    # Keeping -----------------------------------------------------------------------------------

    def begin(self, task: Task) -> None:
        """Make `task` known, so that its examples can be kept and prepared."""
        if any(origin.name == task.name for origin in self.origins):
            raise RivalsError(f"The memory knows the task '{task.name}'; give it another name.")
        self.origins.append(Origin.of_task(task))

    def observe(self, batch: Batch, extra: Mapping[str, Tensor] | None = None) -> None:
        """Offer each example of `batch`, with a row of each `extra` tensor; once, not every epoch."""
        if self.policy == "herding":
            raise RivalsError(
                "A herding memory chooses among all images of a class; "
                "call herd(task, features) at the end of a task."
            )
        number = self._describe(batch.task, batch.raw, batch.labels, extra or {})
        for row, label in enumerate(batch.labels.tolist()):
            key = self._key(number, label)
            if key not in self.stores:
                self._admit([key])
            self.seen[key] = self.seen.get(key, 0) + 1
            store, room = self.stores[key], self.rooms[key]
            place = self._place(key) if len(store) >= room else len(store)
            if place < room:
                store[place : place + 1] = [_exemplar(batch.raw, number, label, extra or {}, row)]
            elif self.policy == "ring":
                del store[0]
                store.append(_exemplar(batch.raw, number, label, extra or {}, row))

    def herd(
        self,
        task: Task,
        features: Features,
        extra: Mapping[str, Tensor] | None = None,
        normalised: bool = True,
    ) -> None:
        """Choose exemplars of each class of `task`; `features` are scaled to length 1 as in iCaRL."""
        if self.policy != "herding":
            raise RivalsError(
                f"A {self.policy} memory takes examples as they come; call observe(batch), "
                "or make the memory with policy='herding'."
            )
        images, labels = task.train.images, task.train.labels
        number = self._describe(task.name, images, labels, extra or {})
        keys = [(number, label) for label in sorted(set(labels.tolist()))]
        if any(key in self.stores for key in keys):
            raise RivalsError(f"The task '{task.name}' was herded before; herd it once, at its end.")
        rooms = self._share([*self.stores, *keys])
        chosen = {}
        for key in keys:
            members = torch.nonzero(labels == key[1]).flatten()  # (images of the class,)
            points = compute(features, (images[i] for i in members.split(BATCH)), len(members))
            points = normalize(points, dim=1) if normalised else points
            chosen[key] = members[herding(points, rooms[key])].tolist()
        self._admit(keys)
        for key, rows in chosen.items():
            self.stores[key] = [_exemplar(images, *key, extra or {}, row) for row in rows]

    # Giving back -------------------------------------------------------------------------------

    def tasks(self) -> list[str]:
        """The tasks of which something is kept, in the order they began."""
        held = {item.task for store in self.stores.values() for item in store}
        return [self.origins[number].name for number in sorted(held)]

    def all(self, task: str) -> Replay:
        """Every exemplar of `task`: of a ring oldest first, of a herd best first in each class."""
        items = self._items()[self._number(task)]
        if not items:
            raise RivalsError(f"Nothing is kept of the task '{task}'; ask tasks() for what there is.")
        return self.origins[items[0].task].replay(items, torch.arange(len(items)))

    def sample(self, count: int, seed: Seed, without: str | None = None) -> list[Replay]:
        """`count` exemplars drawn uniformly, none twice (all, if fewer are kept); a batch for each
        task among them. `without` leaves a task out, such as the present one."""
        if count < 1:
            raise RivalsError(f"{count} exemplars were asked for; ask for at least 1.")
        left_out = ALL if without is None else self._number(without)
        held = self._items()
        places = [
            (number, place)
            for number, items in enumerate(held)
            for place in range(len(items))
            if number != left_out
        ]
        drawn: dict[int, list[int]] = {}
        for draw in torch.randperm(len(places), generator=seed.torch())[:count].tolist():
            number, place = places[draw]
            drawn.setdefault(number, []).append(place)
        return [
            self.origins[number].replay([held[number][p] for p in chosen], torch.tensor(chosen))
            for number, chosen in sorted(drawn.items())
        ]

    def portions(self) -> list[Task]:
        """What is kept, as tasks to train on; a batch's `index` then counts as `all` does."""
        found = []
        for name in self.tasks():
            kept, origin = self.all(name), self.origins[self._number(name)]
            train = Examples(kept.raw, kept.labels)
            found.append(Task(name, origin.classes, train, train, origin.preprocessing))
        return found

    def bytes(self) -> dict[str, int]:
        """What is kept, by kind; exactly the tensors of `state`."""
        items = [item for store in self.stores.values() for item in store]
        return {
            "images": sum(item.image.nbytes for item in items),
            "labels": LABEL_BYTES * len(items),
            "extra": sum(tensor.nbytes for item in items for tensor in item.extra),
        }

    # Saving ------------------------------------------------------------------------------------

    def state(self) -> Part:
        """Everything needed to go on; names of tasks stand in facts, where any text is allowed."""
        # Here, not above: methods import this module, and it must not import them back.
        from rivals.methods.state import Part

        items = [item for store in self.stores.values() for item in store]
        tensors: dict[str, Tensor] = {}
        if items:
            tensors["images"] = torch.stack([item.image for item in items])
            pairs = [(item.task, item.label) for item in items]
            tensors["labels"] = torch.tensor(pairs, dtype=torch.int32)  # (n, 2)
        for number, own in enumerate(self._items()):
            for place in range(len(self.origins[number].layout or {}) if own else 0):
                rows = [item.extra[place] for item in own]
                tensors[f"extra.{number}.{place}"] = torch.stack(rows)  # (of the task, …)
        facts = {
            "made": self._made(),
            "shape": list(self.shape),
            "tasks": [origin.facts() for origin in self.origins],
            "seen": [[*key, count] for key, count in self.seen.items()],
        }
        return Part(tensors, facts)

    def load(self, part: Part) -> None:
        """Become the memory that was saved."""
        facts, tensors = part.facts, part.tensors
        if facts["made"] != self._made():
            raise RivalsError(
                f"The memory was saved with {facts['made']}, but this one has {self._made()}; "
                "go on with the settings it was saved with."
            )
        self.shape = tuple(facts["shape"])
        self.origins = [Origin.of_facts(entry) for entry in facts["tasks"]]
        self.seen = {(task, label): count for task, label, count in facts["seen"]}
        self.stores = {}
        used = [0] * len(self.origins)
        for row, (task, label) in enumerate(tensors["labels"].tolist() if tensors else []):
            names = [f"extra.{task}.{p}" for p in range(len(self.origins[task].layout or {}))]
            extra = {name: tensors[name][used[task] : used[task] + 1] for name in names}
            image = tensors["images"][row : row + 1]
            self.stores.setdefault(self._key(task, label), []).append(
                _exemplar(image, task, label, extra, 0)
            )
            used[task] += 1
        self.rooms = self._share(self.stores) if self.stores else {}

    def _made(self) -> dict[str, Any]:
        return {"policy": self.policy, "rings": self.rings, **vars(self.budget)}

    # Stores and their rooms --------------------------------------------------------------------

    def _number(self, task: str) -> int:
        for number, origin in enumerate(self.origins):
            if origin.name == task:
                return number
        raise RivalsError(f"The memory does not know the task '{task}'; call begin(task) first.")

    def _describe(
        self, task: str, raw: Tensor, labels: Tensor, extra: Mapping[str, Tensor]
    ) -> int:
        """The task's number, once its examples are known to fit; a new layout may cost room."""
        number = self._number(task)
        origin = self.origins[number]
        layout = layout_of(origin, raw, labels, extra)
        shape = tuple(raw.shape[1:])
        if self.shape and shape != self.shape:
            raise RivalsError(
                f"Images are {shape}, but the memory holds {self.shape}; "
                "bring all tasks to one shape."
            )
        self.shape = shape
        if origin.layout is None:
            origin.layout = layout
            self._admit([])
        return number

    def _key(self, task: int, label: int) -> Key:
        if self.policy == "reservoir" and not self.budget.per_class:
            return ALL, ALL
        return (task, ALL) if self.policy == "ring" and self.rings == "task" else (task, label)

    def _size(self, number: int) -> int:
        """Bytes of one exemplar of a task."""
        pixels = torch.Size(self.shape).numel()
        return pixels + LABEL_BYTES + self.origins[number].extra_bytes()

    def _share(self, keys: Iterable[Key]) -> dict[Key, int]:
        """How many images each store may hold if `keys` are the stores."""
        keys = list(keys)
        if self.budget.per_class:
            counts = [len(self.origins[k[0]].classes) if k[1] == ALL else 1 for k in keys]
            rooms = [self.budget.per_class * count for count in counts]
        elif keys == [(ALL, ALL)]:
            sizes = [self._size(n) for n, o in enumerate(self.origins) if o.layout is not None]
            rooms = [self.budget.whole(sizes)]
        else:
            kind = self.rings if self.policy == "ring" else "class"
            rooms = [self.budget.share([self._size(k[0]) for k in keys], kind)] * len(keys)
        return dict(zip(keys, rooms, strict=True))

    def _admit(self, keys: list[Key]) -> None:
        """Open stores for `keys`; the others give up what no longer fits."""
        if not (keys or self.stores):
            return
        self.rooms = self._share([*self.stores, *keys])
        for key, store in self.stores.items():
            room = self.rooms[key]
            if len(store) <= room:
                continue
            if self.policy == "ring":
                del store[: len(store) - room]
            elif self.policy == "herding":
                del store[room:]
            else:  # a uniform choice among a uniform sample is one
                seed = self.seed.child("shrink", *key, self.seen[key])
                left = torch.randperm(len(store), generator=seed.torch())[:room]
                self.stores[key] = [store[i] for i in left.sort().values.tolist()]
        self.stores.update({key: [] for key in keys})

    def _place(self, key: Key) -> int:
        """Where the newest example goes in a full store; at `room` or beyond, nowhere.

        The n-th of a stream draws from U{0 … n − 1}, a function of the seed and n alone; the
        63 bits of a child are scaled, which is uniform but for n / 2⁶³.
        """
        if self.policy == "ring":
            return self.rooms[key]
        count = self.seen[key]
        return (self.seed.child("reservoir", *key, count).value * count) >> 63

    def _items(self) -> list[list[Exemplar]]:
        """Exemplars by task number, store after store."""
        held: list[list[Exemplar]] = [[] for _ in self.origins]
        for store in self.stores.values():
            for item in store:
                held[item.task].append(item)
        return held


def _exemplar(
    raw: Tensor, task: int, label: int, extra: Mapping[str, Tensor], row: int
) -> Exemplar:
    """Row `row` as copies: a view would keep the whole batch in memory."""
    rest = tuple(values[row].detach().clone() for values in extra.values())
    return Exemplar(raw[row].clone(), task, label, rest)
