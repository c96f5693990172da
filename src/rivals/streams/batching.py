"""An epoch in batches: shuffled or episodic, augmented or not, always a function of its seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rivals.seeds import Seed
from rivals.streams.augment import augment
from rivals.streams.task import Batch, Task


@dataclass(frozen=True)
class Batching:
    """How an epoch is cut: plain batches of `size`, or episodes of `ways` classes × `shots`."""

    size: int
    shots: int = 0  # images of each class in an episode; 0: plain batches
    ways: int = 0  # classes in an episode; 0: all of the task
    augmentation: str = "none"

    def count(self, task: Task) -> int:
        """Batches in an epoch. In plain ones a single image left over joins the batch before it,
        since batch statistics need two."""
        examples = len(task.train)
        if self.shots:
            return max(1, examples // (self.shots * self.drawn(task)))
        full, rest = divmod(examples, self.size)
        return full + (rest > 1 or (rest == 1 and full == 0))

    def drawn(self, task: Task) -> int:
        """How many classes an episode has."""
        return min(self.ways or len(task.classes), len(task.classes))

    def indices(self, task: Task, seed: Seed) -> list[Tensor]:
        """The images of every batch of an epoch."""
        generator, batches = seed.child("order", task.name).torch(), self.count(task)
        if self.shots:
            return [self.episode(task, generator) for _ in range(batches)]
        order = torch.randperm(len(task.train), generator=generator)
        return list(order.tensor_split([k * self.size for k in range(1, batches)]))

    def episode(self, task: Task, generator: torch.Generator) -> Tensor:
        """Classes drawn at random, `shots` images of each; a class with fewer gives them all."""
        labels = task.train.labels
        present = torch.tensor(sorted(set(labels.tolist())))
        drawn = present[torch.randperm(len(present), generator=generator)[: self.drawn(task)]]
        chosen = []
        for label in drawn.tolist():
            members = torch.nonzero(labels == label).flatten()
            chosen.append(members[torch.randperm(len(members), generator=generator)[: self.shots]])
        return torch.cat(chosen)


def epoch(
    portions: Sequence[Task], batching: Batching, seed: Seed, first: int = 0
) -> Iterator[Batch]:
    """The training sets of `portions` once, from batch `first`; no batch mixes tasks.

    The order is a function of the seed, so an epoch that was cut short goes on where it stopped.
    """
    schedule = [(task, index) for task in portions for index in batching.indices(task, seed)]
    if len(portions) > 1:
        shuffle = torch.randperm(len(schedule), generator=seed.child("schedule").torch())
        schedule = [schedule[i] for i in shuffle.tolist()]
    for number in range(first, len(schedule)):
        task, index = schedule[number]
        raw = task.train.images.index_select(0, index)  # ten times as fast as images[index]
        seen = raw
        if batching.augmentation != "none":
            seen = augment(raw, batching.augmentation, seed.child("augment", number).torch())
        labels = task.train.labels[index]
        yield Batch(task.preprocessing(seen), labels, task.name, index, raw)
