"""What it takes to name the task of an image: a rule, and the namer it becomes once tasks are met.

rule.keep(task)  when a task is learned ─►  kept, saved with the model
rule.namer(all that is kept, tickets)  when the tickets are stacked ─►  namer
namer(images, what the tickets make of them)  ─►  task, class, confidence
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor

from rivals.streams.task import Task
from rivals.tickets.parallel import SharedBodyTicket, TicketOutput

Read = Callable[[Tensor], TicketOutput]  # one ticket on raw images
ReadAll = Callable[[Tensor], Sequence[TicketOutput]]  # all of them
Kept = dict[str, Tensor]
PER_CLASS = 10  # images that a rule which keeps some keeps of a class


class TaskNamer(ABC):
    """Names tasks among those that it has met."""

    @abstractmethod
    def __call__(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """For each raw image the task, the class within it, and the confidence: (n,) each."""

    def among_all(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The same, and the probabilities of the classes of all tasks, if a rule knows them."""
        return *self(images, outputs), None

    @abstractmethod
    def belief(self, images: Tensor, outputs: Sequence[TicketOutput]) -> tuple[Tensor, Tensor]:
        """For the classes of all tasks, task after task: scores to compare, and confidences.

        Both are (n, classes); a call names the class with the largest score.
        """

    def familiarity(self, outputs: Sequence[TicketOutput], which: Tensor) -> Tensor:
        """The share of the pictures of a task that look less familiar than a picture, for the tasks
        named: (n,); below 0 where none does. Only where tickets share features, the last output."""
        raise NotImplementedError


class Rule(ABC):
    """A way to name tasks.

    `features` is a ticket without classes, whose features are the same for all tasks; None for
    rules that look at what the tickets of the tasks give.
    """

    features: SharedBodyTicket | None = None

    def keep(self, task: Task, read: Read, per_class: int = PER_CLASS) -> Kept:
        """What must be remembered of `task`; `read` is its ticket, or `features`."""
        return {}

    def join(self, one: Kept, other: Kept, share: float) -> Kept:
        """What is kept of two samples of a task together, `share` of which is the other's."""
        raise NotImplementedError

    @abstractmethod
    def namer(self, kept: Sequence[Kept], read: ReadAll) -> TaskNamer:
        """Get ready for the tasks of which this was kept; `read` are their tickets together."""
