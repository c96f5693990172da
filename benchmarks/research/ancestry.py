"""From whom should a new task inherit? TWTA with other ancestors, for the question `ancestor`.

    previous   the ticket before, as in TWTA itself
    probe      the one whose features tell the new classes apart best, by ridge regression
    moving     an average in which every ticket counts `share` and all before it the rest
    blocks     block by block, of the last `sources` tickets or fresh, whoever wins a competition
    drawn      the same, but chance decides

Units of one block descend from one another, so a mixture of them is a unit. In `blocks` every block
has a posterior over its sources. For `choosing` epochs weights are mixtures of the sources, drawn
by Gumbel-Softmax anew in every step; posteriors, norms and head learn, the sources do not. Then the
favourite of every block is inherited, and the task is learned for the epochs that are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.learn.training_settings import one_of
from rivals.learn.twta import TWTA
from rivals.learn.twta_settings import TWTASettings
from rivals.naming.ridge import Ridge
from rivals.nn.blocks import RivalBlocks
from rivals.nn.competition import gumbel, relaxed_sample
from rivals.nn.selection import Settled
from rivals.nn.twta_layers import TWTALayer
from rivals.streams.batching import epoch
from rivals.streams.task import Task
from rivals.tickets.parallel import ParallelTickets

PENALTY = 1e-2  # of the probe, times the number of images
FRESH = ""  # a source that is nobody's


@dataclass(frozen=True)
class AncestrySettings(TWTASettings):
    """Who is inherited from."""

    from_whom: str = "previous"
    share: float = 0.5  # of the ticket before in a moving average
    sources: int = 4  # the last tickets among which blocks choose, a fresh start beside them
    choosing: int = 2  # epochs, of all, in which they do

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "from_whom", ("previous", "probe", "moving", "blocks", "drawn"))


class Ancestry(TWTA):
    """TWTA, but for whom a ticket starts as a copy of."""

    settings: AncestrySettings
    settings_class = AncestrySettings

    def planned_epochs(self) -> int:
        chooses = self.settings.from_whom == "blocks"
        return self.settings.epochs - (self.settings.choosing if chooses else 0)

    def ancestor(self, task: Task) -> str | None:
        if self.settings.from_whom == "probe" and self.known:
            return max(self.known, key=lambda name: self.told_apart(name, task))
        return super().ancestor(task)

    @torch.no_grad()
    def told_apart(self, name: str, task: Task) -> float:
        """Of the training images of `task`, how many a line on a ticket's features gets right."""
        with self.charged():
            read = ParallelTickets([self.ticket(name)], [task.preprocessing])(task.train.images)[0]
        rows = read.features.double()
        rows = torch.cat([rows, torch.ones(len(rows), 1, dtype=torch.float64)], 1)
        ridge = Ridge(rows, F.one_hot(task.train.labels).double())
        left_out = ridge.left_out(PENALTY * len(rows))
        return float((left_out.argmax(1) == task.train.labels).float().mean())

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        if not self.known:
            return
        if self.settings.from_whom == "moving":
            self.inherit_average()
        elif self.settings.from_whom in ("blocks", "drawn"):
            self.inherit_by_blocks(task)

    # An average --------------------------------------------------------------------------------

    @torch.no_grad()
    def inherit_average(self) -> None:
        first, *others = self.known
        for layer in self.network.layers():
            average = self.learned(layer, first)
            for name in others:
                for mean, ours in zip(average, self.learned(layer, name), strict=True):
                    mean.lerp_(ours, self.settings.share)
            weight, scale, shift = average
            self.start_with(layer, weight)
            state = layer.norm.state(self.current)
            state.scale.copy_(scale)
            state.shift.copy_(shift)

    def learned(self, layer: TWTALayer, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """What a ticket has in a layer: weights, and scale and shift of its norm."""
        norm = layer.norm.state(name)
        return self.network.ticket_slice(layer, name), norm.scale.clone(), norm.shift.clone()

    def start_with(self, layer: TWTALayer, weight: Tensor) -> None:
        """Let the free edges of the present ticket start as `weight` (rows, columns, taps)."""
        assert isinstance(self.selection, Settled)
        part = self.selection.slices[layer]
        part.leaf.copy_(weight if part.free is None else torch.where(part.free, weight, part.leaf))

    # Block by block ----------------------------------------------------------------------------

    def inherit_by_blocks(self, task: Task) -> None:
        names = [*list(self.known)[-self.settings.sources :], FRESH]
        sources = {layer: self.slices_of(layer, names) for layer in self.network.layers()}
        generator = self.seed.child("sources", task.name).torch()
        posteriors: dict[RivalBlocks, Tensor] = {
            rivals: torch.rand(rivals.blocks, len(names), generator=generator) * 0.01
            for rivals in self.network.rivals()
        }
        if self.settings.from_whom == "blocks":
            self.choose(task, posteriors, sources)
        with torch.no_grad():
            for layer, slices in sources.items():
                best = posteriors[layer.rivals].argmax(1)  # (rows,)
                self.start_with(layer, slices[best, torch.arange(len(best))])
                layer.norm.state(self.current).forget_statistics()
        self.prepare_settled()

    @torch.no_grad()
    def slices_of(self, layer: TWTALayer, names: list[str]) -> Tensor:
        """What the present ticket would be as a copy of each: (sources, rows, columns, taps)."""
        work = layer.work
        fresh = layer.weight.read(work.rows, work.columns)
        found = [self.network.ticket_slice(layer, name) if name else fresh for name in names]
        if work.free is None:
            return torch.stack(found)
        return torch.stack([torch.where(work.free.unsqueeze(2), each, fresh) for each in found])

    def choose(
        self, task: Task, posteriors: dict[RivalBlocks, Tensor], sources: dict[TWTALayer, Tensor]
    ) -> None:
        """Let posteriors learn which mixture of sources the new task is served best by."""
        s = self.settings
        leaves = [posterior.requires_grad_() for posterior in posteriors.values()]
        optimisers = [
            torch.optim.Adam(leaves, lr=s.posterior_lr),
            torch.optim.SGD(self.own_parameters(), lr=s.lr, momentum=s.momentum),
        ]
        steps = s.batching.count(task) * s.choosing
        step = 0
        for number in range(s.choosing):
            seed = self.seed.child("choosing", task.name, number)
            for batch in epoch([task], s.batching, seed):
                noise = self.seed.child("mixing", task.name, step).torch()
                mixed = Mixed(task.name, posteriors, sources, s.temperature, noise)
                with self.charged():
                    scores = self.network.learning(True)(batch.images, task.name, mixed)
                    F.cross_entropy(scores, batch.labels).backward()
                optimisers[1].param_groups[0]["lr"] = s.lr * (1 - step / steps)
                for optimiser in optimisers:
                    optimiser.step()
                    optimiser.zero_grad()
                step += 1
        for posterior in leaves:
            posterior.requires_grad_(False)


class Mixed(Settled):
    """The winners' weights as mixtures of what they could start as, drawn once a step."""

    def __init__(
        self,
        task: str,
        posteriors: dict[RivalBlocks, Tensor],
        sources: dict[TWTALayer, Tensor],
        temperature: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__(task)
        self.sources = sources
        self.mixture: dict[RivalBlocks, Tensor] = {
            rivals: relaxed_sample(each, gumbel(tuple(each.shape), generator), temperature)
            for rivals, each in posteriors.items()
        }

    def weight(self, layer: TWTALayer, rows: Tensor, columns: Tensor) -> Tensor:
        strength = self.mixture[layer.rivals].T[:, :, None, None]  # (sources, rows, 1, 1)
        mixed: Tensor = (strength * self.sources[layer]).sum(0)
        return mixed
