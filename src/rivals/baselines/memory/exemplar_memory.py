"""Exemplars: a few examples of each task that a replay method keeps, within a budget.

    reservoir   a uniform sample of all examples seen (Vitter 1985, Algorithm R); of each class, if
                the budget is per class
    ring        the newest examples of each class, or of each task (GEM)
    herding     examples whose mean feature follows the class mean (iCaRL), best first

A batch never mixes tasks, because norms and heads belong to tasks: replay comes task by task.
Exemplars are stored on the CPU; batches are made on the method's device.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rivals.baselines.memory.exemplar import (
    LABEL_BYTES,
    Exemplar,
    Origin,
    Replay,
    exemplar_bytes,
    layout_of,
    pack_exemplars,
    unpack_exemplars,
)
from rivals.baselines.memory.exemplar_stores import ALL, Budget, ExemplarStores
from rivals.baselines.memory.herding import BATCH, Features, compute_features, herding
from rivals.errors import RivalsError
from rivals.learn.state import StatePart
from rivals.seeds import Seed
from rivals.streams.task import Batch, Examples, Task

CPU = torch.device("cpu")


class ExemplarMemory:
    """Keeps raw images with label, task and extra tensors; gives them back as batches."""

    def __init__(
        self, budget: Budget, policy: str, seed: Seed, rings: str = "class",
        device: torch.device = CPU,
    ) -> None:  # fmt: skip
        """`policy` is reservoir, ring or herding; `rings` are one per class or one per task."""
        self.stores = ExemplarStores(budget, policy, seed, rings)
        self.device = device  # of the batches that are given back
        self.origins: list[Origin] = []
        self.shape: tuple[int, ...] = ()  # (channels, height, width), of the first image

    def __len__(self) -> int:
        return sum(1 for _ in self.stores)

    # Keeping -----------------------------------------------------------------------------------

    def begin(self, task: Task) -> None:
        """Register `task`, so that its examples can be kept and preprocessed."""
        if any(origin.name == task.name for origin in self.origins):
            raise RivalsError(f"The memory knows the task '{task.name}'; give it another name.")
        self.origins.append(Origin(task.name, task.classes, task.preprocessing))

    def observe(self, batch: Batch, extra: Mapping[str, Tensor] | None = None) -> None:
        """Offer the examples of `batch`, each with its row of `extra`: once, not in every epoch."""
        if self.stores.policy == "herding":
            raise RivalsError(
                "A herding memory chooses among all images of a class; "
                "call herd(task, features) at the end of a task."
            )
        raw, labels = batch.raw.cpu(), batch.labels.cpu()
        stored = {name: values.detach().cpu() for name, values in (extra or {}).items()}
        number, columns = self._fit(batch.task, raw, labels, stored)
        for row, label in enumerate(labels.tolist()):
            self.stores.offer(
                number, label, partial(Exemplar.copy, raw, number, label, columns, row)
            )

    def herd(
        self,
        task: Task,
        features: Features,
        extra: Mapping[str, Tensor] | None = None,
        normalised: bool = True,
    ) -> None:
        """Choose exemplars of each class of `task`; features are scaled to length 1 as in iCaRL."""
        if self.stores.policy != "herding":
            raise RivalsError(
                f"A {self.stores.policy} memory takes examples as they come; call observe(batch), "
                "or make the memory with the policy herding."
            )
        images, labels = task.train.images, task.train.labels
        number, columns = self._fit(task.name, images, labels, extra or {})
        keys = [(number, label) for label in sorted(set(labels.tolist()))]
        if any(key in self.stores.held for key in keys):
            raise RivalsError(
                f"The task '{task.name}' was herded before; call herd once, at its end."
            )
        rooms = self.stores.share([*self.stores.held, *keys])
        chosen = {}
        for key in keys:
            members = torch.nonzero(labels == key[1]).flatten()  # (images of the class,)
            points = compute_features(
                features, (images[i] for i in torch.split(members, BATCH)), len(members)
            )
            points = normalize(points, dim=1) if normalised else points
            chosen[key] = members[herding(points, rooms[key])].tolist()
        self.stores.add_stores(keys)
        for key, rows in chosen.items():
            self.stores.held[key] = [Exemplar.copy(images, *key, columns, row) for row in rows]

    def _fit(
        self, task: str, raw: Tensor, labels: Tensor, extra: Mapping[str, Tensor]
    ) -> tuple[int, list[Tensor]]:
        """The task's number and the extra tensors in its order, once all shapes fit."""
        number = self._number(task)
        origin = self.origins[number]
        layout = layout_of(raw, extra)
        origin.check(raw, labels, layout)
        shape = tuple(raw.shape[1:])
        if self.shape and shape != self.shape:
            raise RivalsError(
                f"Images are {shape}, but the memory holds {self.shape}; "
                "bring all tasks to one shape."
            )
        if origin.layout is None:
            self.stores.add_task(number, exemplar_bytes(shape, layout), len(origin.classes))
            origin.layout, self.shape = layout, shape
        return number, [extra[name] for name in origin.layout]

    def _number(self, task: str) -> int:
        for number, origin in enumerate(self.origins):
            if origin.name == task:
                return number
        raise RivalsError(f"The memory does not know the task '{task}'; call begin(task) first.")

    # Replay ------------------------------------------------------------------------------------

    def tasks(self) -> list[str]:
        """The tasks of which something is kept, in the order they began."""
        return [self.origins[number].name for number in sorted({i.task for i in self.stores})]

    def all(self, task: str) -> Replay:
        """Every exemplar of `task`: of a ring oldest first, of a herd best first in each class."""
        number = self._number(task)
        items = [item for item in self.stores if item.task == number]
        if not items:
            raise RivalsError(
                f"Nothing is kept of the task '{task}'; ask tasks() for what there is."
            )
        return self.origins[number].replay(items, torch.arange(len(items)), self.device)

    def sample(
        self, count: int, seed: Seed, without: str | None = None, augmentation: str = "none"
    ) -> list[Replay]:
        """`count` exemplars drawn uniformly, none twice (all, if fewer are kept); a batch for each
        task among them. `without` leaves a task out, such as the present one."""
        if count < 1:
            raise RivalsError(f"{count} exemplars were asked for; ask for at least 1.")
        left_out = ALL if without is None else self._number(without)
        held = self.stores.by_task(len(self.origins))
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
            self.origins[number].replay(
                [held[number][p] for p in chosen],
                torch.tensor(chosen),
                self.device,
                augmentation,
                seed,
            )
            for number, chosen in sorted(drawn.items())
        ]

    def portions(self) -> list[Task]:
        """What is kept, as tasks to train on; a batch's `index` then counts as `all` does."""
        found = []
        for origin, items in zip(self.origins, self.stores.by_task(len(self.origins)), strict=True):
            if items:
                images = torch.stack([item.image for item in items])
                train = Examples(images, torch.tensor([item.label for item in items]))
                found.append(Task(origin.name, origin.classes, train, train, origin.preprocessing))
        return found

    def bytes(self) -> dict[str, int]:
        """What is kept, by kind; exactly the tensors of `state`."""
        return {
            "images": sum(item.image.nbytes for item in self.stores),
            "labels": LABEL_BYTES * len(self),
            "extra": sum(tensor.nbytes for item in self.stores for tensor in item.extra),
        }

    # Saving ------------------------------------------------------------------------------------

    def state(self) -> StatePart:
        """Everything needed to continue."""
        facts = {
            "settings": self.stores.settings(),
            "shape": list(self.shape),
            "tasks": [origin.facts() for origin in self.origins],
            "seen": [[*key, count] for key, count in self.stores.seen.items()],
        }
        return StatePart(pack_exemplars(list(self.stores)), facts)

    def load(self, part: StatePart) -> None:
        """Become the memory that was saved."""
        facts, fresh = part.facts, self.stores.emptied()
        if facts["settings"] != fresh.settings():
            raise RivalsError(
                f"The memory was saved with {facts['settings']}, but this one has "
                f"{fresh.settings()}; continue with the settings it was saved with."
            )
        self.shape = tuple(facts["shape"])
        self.origins = [Origin.of_facts(entry) for entry in facts["tasks"]]
        for number, origin in enumerate(self.origins):
            if origin.layout is not None:
                size = exemplar_bytes(self.shape, origin.layout)
                fresh.add_task(number, size, len(origin.classes))
        seen = {(task, label): count for task, label, count in facts["seen"]}
        fresh.restore(unpack_exemplars(part.tensors), seen)
        self.stores = fresh
