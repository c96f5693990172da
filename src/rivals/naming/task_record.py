"""What a method remembers of a task once it is learned, and what it answers about images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.nn.task_state import NamedTensors
from rivals.streams.task import Preprocessing
from rivals.tickets.parallel import TicketOutput


class TaskRecord(nn.Module):
    """Class names, how to prepare pictures, and what it takes to name the task later.

    `kept` is None until the task is learned.
    """

    def __init__(
        self, classes: tuple[str, ...], preprocessing: Preprocessing,
        kept: Mapping[str, Tensor] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.classes, self.preprocessing = classes, preprocessing
        self.statistics = None if kept is None else NamedTensors(kept)

    @property
    def kept(self) -> dict[str, Tensor] | None:
        return None if self.statistics is None else self.statistics.to_dict()

    def with_kept(self, kept: Mapping[str, Tensor]) -> TaskRecord:
        return TaskRecord(self.classes, self.preprocessing, kept)


def learned_tasks(known: Mapping[str, TaskRecord]) -> tuple[str, ...]:
    """The tasks that were learned to their end; none is an error."""
    tasks = tuple(name for name, record in known.items() if record.kept is not None)
    if not tasks:
        raise RivalsError("No task is learned yet, so none can be inferred; learn one first.")
    return tasks


@dataclass(frozen=True)
class Prediction:
    """For each image: the task (an index into `tasks`), the class within it, the confidence."""

    tasks: tuple[str, ...]
    task: Tensor  # (n,)
    label: Tensor  # (n,)
    confidence: Tensor  # (n,)
    rejected: Tensor | None = None  # (n,) bool, where that was asked
    outputs: Sequence[TicketOutput] = ()  # of the tickets that were asked
    member: int | None = None  # the only task that was asked
    joint: Tensor | None = None  # (n, classes): probabilities among the classes of all tasks

    def probabilities(self, image: int) -> Tensor:
        """Of the classes of the task that was named for one image."""
        place = 0 if self.member is not None else int(self.task[image])
        return torch.softmax(self.outputs[place].scores[image], 0)
