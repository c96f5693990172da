"""Naming tasks by features that are the same for all tasks: an ancestor's, or a filter bank's.

    frozen features ─► one linear discriminant over all classes of all tasks ─► which task
                       the ticket of every task                              ─► which class in it

Of each task class means, a covariance and how its own pictures answer are kept, and no picture:
task_statistics.py. They say nothing of another task, so a task that is dropped leaves no trace. The
features are computed once, however many tasks there are, and so are all products.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rivals.naming.confidence import SPREAD
from rivals.naming.feature_space import FeatureSpace
from rivals.naming.joint_head import LEAST, JointHead
from rivals.naming.rule import PER_CLASS, Kept, Read, ReadAll, Rule, TaskNamer
from rivals.naming.task_statistics import TaskStatistics
from rivals.streams.task import Task
from rivals.tickets.parallel import SharedBodyTicket, TicketOutput


class SharedFeatures(Rule):
    """Names tasks by one discriminant in a space of features."""

    def __init__(self, space: FeatureSpace, features: SharedBodyTicket | None = None) -> None:
        self.space, self.features = space, features

    def keep(self, task: Task, read: Read, per_class: int = PER_CLASS) -> Kept:
        """Statistics of the features that `read` gives, which are the same for all tasks."""
        features = read(task.train.images).features
        return self.kept(features, task.train.labels, len(task.classes))

    def kept(self, features: Tensor, labels: Tensor, classes: int) -> Kept:
        """The same of features (n, d) and labels (n,)."""
        rows, places = features.cpu().numpy(), labels.cpu().numpy()
        return self._tensors(TaskStatistics.of(rows, places, classes, self.space))

    def join(self, one: Kept, other: Kept, share: float = 0.0) -> Kept:
        """They know themselves how many pictures they are of."""
        first, second = (self.statistics(each) for each in (one, other))
        return self._tensors(first.join(second))

    def with_picture(self, kept: Kept, features: Tensor, label: int) -> Kept:
        """What is kept once one more picture with features (d,) is of the class."""
        found = self.statistics(kept).with_picture(features.cpu().numpy(), label, self.space)
        return self._tensors(found)

    def statistics(self, kept: Kept) -> TaskStatistics:
        arrays = {name: tensor.cpu().numpy() for name, tensor in kept.items()}
        return TaskStatistics.from_stored(arrays, self.space)

    def _tensors(self, found: TaskStatistics) -> Kept:
        return {name: torch.from_numpy(each) for name, each in found.stored(self.space).items()}

    def namer(self, kept: Sequence[Kept], read: ReadAll) -> SharedNamer:
        return SharedNamer(JointHead.of([self.statistics(each) for each in kept], self.space))


class SharedNamer(TaskNamer):
    """A joint head, joined with the tickets of its tasks."""

    def __init__(self, made: JointHead) -> None:
        self.made, self._placed = made, dict[torch.device, dict[str, Tensor]]()
        self.tensors(torch.device("cpu"))  # before it is traced: what is made then is no tensor

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """The arrays of the head on a device."""
        if device not in self._placed:
            made = self.made
            (near, offset), last = made.close, len(made.task)
            found = {
                "centre": made.centre, "weight": made.weight, "bias": made.bias,
                "near": near, "offset": offset, "levels": made.levels,
                "usual": made.usual, "metrics": made.metrics, "metric": made.metric,
                "background": made.space.background.astype("float32"), "task": made.task,
                "label": made.label, "members": made.members.clip(max=last - 1),
                "missing": made.members == last,
                "place": made.task * made.members.shape[1] + made.label,
            }  # fmt: skip
            self._placed[device] = {
                name: torch.from_numpy(array).to(device) for name, array in found.items()
            }
        return self._placed[device]

    def rows(self, features: Tensor) -> Tensor:
        """Less the centre: (n, d)."""
        space = features.clamp(min=0).sqrt() if self.made.space.rooted else features
        return space - self.tensors(features.device)["centre"]

    def belief(self, images: Tensor, outputs: Sequence[TicketOutput]) -> tuple[Tensor, Tensor]:
        """The last output has the shared features and no classes."""
        *tickets, shared = outputs
        head = self.tensors(shared.features.device)
        of_task = self._by_task(self.named(shared.features), 0.0).sum(2).clamp(min=LEAST).log()
        joined = of_task[:, head["task"]] + self._own(torch.cat([e.scores for e in tickets], 1))
        return joined, joined.exp()

    def named(self, features: Tensor) -> Tensor:
        """Probabilities of the classes of all tasks by the discriminant alone: (n, classes)."""
        head = self.tensors(features.device)
        scores = self.rows(features) @ head["weight"].T + head["bias"]
        return (torch.softmax(scores * SPREAD, 1) + torch.softmax(scores / SPREAD, 1)) / 2

    def _own(self, scores: Tensor) -> Tensor:
        """Log probabilities of all classes in their tasks: (n, classes)."""
        logs = torch.log_softmax(self._by_task(scores, -torch.inf), 2)
        return logs.flatten(1)[:, self.tensors(scores.device)["place"]]

    def _by_task(self, values: Tensor, missing: float) -> Tensor:
        """(n, classes) → (n, tasks, most classes), filled up."""
        head = self.tensors(values.device)
        found: Tensor = torch.where(head["missing"], missing, values[:, head["members"]])
        return found

    def __call__(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor]:
        return self.among_all(images, outputs)[:3]

    def among_all(
        self, images: Tensor, outputs: Sequence[TicketOutput]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        scores, confidences = self.belief(images, outputs)
        best, head = scores.argmax(1), self.tensors(scores.device)
        confidence = confidences.gather(1, best.unsqueeze(1))[:, 0]
        return head["task"][best], head["label"][best], confidence, confidences

    def familiarity(self, outputs: Sequence[TicketOutput], which: Tensor) -> Tensor:
        features = outputs[-1].features
        head, rows = self.tensors(features.device), self.rows(features)
        close = self._members(rows @ head["near"].T + head["offset"], which).amax(1)
        near = close - squares(rows, head["metrics"][head["metric"][which]])
        measures = torch.stack([near, near + squares(rows, head["background"])], 1)
        usual = head["usual"][which]
        values = ((measures - usual[..., 0]) / usual[..., 1]).amin(1)
        return share_below(head["levels"][which], values)

    def _members(self, values: Tensor, which: Tensor) -> Tensor:
        """Of values (n, classes) those of the task of each row: (n, most classes)."""
        head = self.tensors(values.device)
        own = values.gather(1, head["members"][which])
        return own.masked_fill(head["missing"][which], -torch.inf)


def squares(rows: Tensor, by: Tensor) -> Tensor:
    """Rows (n, d) squared by a matrix (d, d), or by one each (n, d, d); or by numbers: (n,)."""
    if by.shape[-1] == 1:
        return (rows * by * rows).sum(1)
    along = rows @ by if by.dim() == 2 else (rows.unsqueeze(1) @ by).squeeze(1)
    return (along * rows).sum(1)


def share_below(levels: Tensor, values: Tensor) -> Tensor:
    """Where values (n,) are between the first of their levels (n, LEVELS), 0, and the last, 1.

    What is below them all is below 0.
    """
    last = levels.shape[1] - 1
    place = (levels <= values.unsqueeze(1)).sum(1)
    low, high = (
        levels.gather(1, each.clamp(0, last).unsqueeze(1))[:, 0] for each in (place - 1, place)
    )
    part = (values - low) / (high - low).clamp(min=1e-12)
    return ((place - 1 + part) / last).clamp(-1, 1)
