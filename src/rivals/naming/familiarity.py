"""Knowing what one does not know: how familiar a picture looks, against those held out.

Naming a task compares tasks; here a task is compared with itself. Its ticket puts a picture
somewhere among the features that its head reads, and familiar is what lies near the mean of a class
there. When a task is learned, its class means are kept, and how familiar its held-out pictures are,
as levels from the least to the most. `reject` = P then refuses what is less familiar than the level
that a share P of the held-out pictures is below: of pictures like those that were learned, about a
share P is refused wrongly, whatever else is refused rightly.

So it is where every ticket has features of its own. Where tasks share an ancestor's features,
task_statistics.py compares with all that the ancestor saw, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from rivals.errors import RivalsError
from rivals.naming import gaussian
from rivals.naming.discriminant import ClassStatistics, covariance
from rivals.nn.task_state import NamedTensors
from rivals.streams.task import Task
from rivals.tickets.parallel import ParallelTickets, TicketOutput

STATISTICS = 4000  # pictures that they are taken from, at most
LEVELS = 201  # of familiarity that are kept


class FeatureStatistics(nn.Module):
    """What is usual for the pictures of a task."""

    levels: Tensor  # (LEVELS,) of held-out pictures, ascending

    def __init__(
        self, features: Mapping[str, Tensor], levels: Tensor,
        derived: Callable[[], Mapping[str, Tensor]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._density = NamedTensors(features)  # means of classes, and the spread around them
        self.register_buffer("levels", levels)
        self.derived = derived  # from statistics that are stored anyway, when it is first asked for

    @property
    def density(self) -> NamedTensors:
        """Means of classes, and the spread around them."""
        if self.derived and not self._density.to_dict():
            self._density = NamedTensors(self.derived())
        return self._density

    @classmethod
    def of_statistics(
        cls, kept: dict[str, Tensor], within: Tensor, prior: float, levels: Tensor | None = None
    ) -> FeatureStatistics:
        """The density that follows from the statistics of a task in closed form."""

        def density() -> dict[str, Tensor]:
            statistics = ClassStatistics.from_tensors(kept)
            spread = covariance([statistics], within, prior)
            return gaussian.of_covariance(statistics.means.float(), spread)

        return cls({}, torch.empty(0) if levels is None else levels, density)

    def forward(self, output: TicketOutput) -> Tensor:
        """How familiar pictures are, by what the task's ticket makes of them: (n,)."""
        return self.log_density(output.features)

    def log_density(self, features: Tensor) -> Tensor:
        return gaussian.log_density(features, self.density.to_dict())

    def closeness(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """How near pictures are to the mean of every class: (n, labels) twice.

        A distance, where 1 is that of the usual held-out picture from its nearest mean; and the
        share of the held-out pictures that lie farther from theirs.
        """
        kept = self.density.to_dict()
        squared, volume = gaussian.squared_distances(features, kept), gaussian.log_volume(kept)
        theirs = (-2 * self.levels - volume).clamp(min=1e-6).to(features.device)  # descending
        farther = (theirs > squared.unsqueeze(2)).float().mean(2)
        return (squared / theirs.median()).sqrt(), farther

    def least(self, share: float) -> float:
        """What a share of the held-out pictures is below."""
        place = share * (LEVELS - 1)
        below = min(int(place), LEVELS - 2)
        return float(torch.lerp(self.levels[below], self.levels[below + 1], place - below))

    def tensors(self) -> dict[str, Tensor]:
        if self.derived:
            return {"levels": self.levels}
        named = {f"features.{name}": t for name, t in self.density.to_dict().items()}
        return {**named, "levels": self.levels}


def load(tensors: dict[str, Tensor]) -> FeatureStatistics:
    """What `tensors` gave."""
    prefix = "features."
    features = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
    return FeatureStatistics(features, tensors["levels"])


def few(task: Task, most: int = STATISTICS) -> Task:
    """The task with at most so many training pictures, evenly of all classes."""
    labels, each = task.train.labels, max(2, most // len(task.classes))
    if len(labels) <= most:
        return task
    members = [torch.nonzero(labels == label).flatten() for label in range(len(task.classes))]
    index = torch.cat([m[:: max(1, len(m) // each)][:each] for m in members])
    return replace(task, train=task.train.subset(index))


@torch.no_grad()
def calibrate(task: Task, together: ParallelTickets) -> FeatureStatistics:
    """Means from the pictures that were learned, levels from those held out."""
    task = few(task)
    learned, held = (together(each.images)[0] for each in (task.train, task.validation))
    familiar = FeatureStatistics(gaussian.fit(learned.features, task.train.labels), torch.empty(0))
    return FeatureStatistics(familiar.density.to_dict(), density_levels(familiar(held)))


def density_levels(densities: Tensor) -> Tensor:
    """Levels from the least familiar picture to the most: (LEVELS,)."""
    return torch.quantile(densities, torch.linspace(0, 1, LEVELS, device=densities.device))


def check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise RivalsError(
            f"The share to reject is {share}, but is at least 0 and below 1; 0.05 refuses about "
            "5 % of the pictures that are known."
        )
