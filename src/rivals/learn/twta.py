"""TWTA: the units of a block compete for each task, stochastically, and one wins it.

Differs from the paper, by default and each for a reason told in docs/paper.md:
- one draw decides before the first step (`compete=0`), and the winners train alone, with momentum;
- the posterior has clear favourites, units with free edges ahead; if units compete longer it learns
  with Adam, and the two favourites of a block take turns (`contenders`, `live`, `way=sparse`); in
  the paper all compete and all are live (`relaxed`), to the last step;
- units are ReLU, with a norm that belongs to the task; weights are initialised for the live fan;
- the edges of a task are protected afterwards, free ones inherit from the task before, and the
  network grows when room runs short.
`--preset paper` is the literal recipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx

from rivals.learn import twta_state
from rivals.learn.method import Method, methods
from rivals.learn.state import State
from rivals.learn.twta_gradients import density, drop_gradients
from rivals.learn.twta_room import contenders, make_room
from rivals.learn.twta_settings import TWTASettings
from rivals.learn.twta_trial import least, movement, take_back
from rivals.nn.blocks import RivalBlocks
from rivals.nn.competition import anneal, live_count
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.selection import Draw, Masked, Settled
from rivals.nn.training_copy import ActiveSlice
from rivals.seeds import Seed
from rivals.streams.batching import epoch
from rivals.streams.task import Batch, Task

DENSITY_EVERY = 20  # steps between two looks at how dense the gradient is
ESTIMATION_BATCHES = 20  # to estimate norms anew when nothing is trained afterwards


@methods.register("twta")
class TWTA(Method):
    """One shared network; a competition, a ticket and a claim for each task."""

    settings: TWTASettings
    settings_class = TWTASettings

    def __init__(self, plan: NetworkPlan, settings: TWTASettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.network = plan.rivals(seed.child("network"), held=settings.protect == "none")
        self.total = self.network.weight_count()  # before any growth
        self.wide_features = self.network.features * plan.settings.units
        self.selection: Draw | Settled | None = None
        self.optimisers: list[torch.optim.Optimizer] = []
        self.competing = False
        self.trial = ""  # the ancestor, while newcomers are on trial against it
        self.current = ""
        self.facts: dict[str, dict[str, Any]] = {}  # of each task, for the results
        self.density = [0.0, 0.0]  # sum and number of looks
        self.dropped = False  # then edges may have moved between tasks

    # A task comes -----------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        s, ancestor = self.settings, self.ancestor(task)
        posteriors = make_room(self, task.name)
        decided = s.way == "trial" or self.compete_steps() == 0  # by the posteriors as they start
        chosen = [contenders(each, 1 if decided else s.contenders) for each in posteriors]
        posteriors = [p.gather(1, c) for p, c in zip(posteriors, chosen, strict=True)]
        self.network.open(task.name, len(task.classes), posteriors, ancestor, chosen)
        self.current, self.competing, self.density = task.name, True, [0.0, 0.0]
        self.prepare_competition()
        if decided:
            self.settle()
        if s.way == "trial" and s.protect == "edges":
            self.trial = ancestor or ""

    def ancestor(self, task: Task) -> str | None:
        """Whose ticket the free edges of a new task start as copies of."""
        return next(reversed(self.known), None) if self.settings.inherit == "previous" else None

    def preference(self) -> float:
        """What a unit with only free edges has ahead of one with none, in log π."""
        return self.settings.prefer_free

    # Steps ------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        return f"compete {self.live()}" if self.competing else "trial" if self.trial else "settled"

    def compete_steps(self) -> int:
        return round(self.settings.compete * self.position.steps)

    def compete_progress(self) -> float:
        return self.position.step / max(1, self.compete_steps() - 1)

    def temperature(self) -> float:
        s = self.settings
        return anneal(s.temperature, s.temperature_end, self.compete_progress())

    def live(self) -> int:
        return live_count(self.settings.live, self.settings.live_end, self.compete_progress())

    def before_step(self, batch: Batch) -> None:
        if self.position.step >= self.compete_steps():
            self.conclude()

    def train_logits(self, batch: Batch) -> Tensor:
        if self.competing:
            self.selection = Draw(
                batch.task,
                self.settings.way,
                self.temperature(),
                self.seed.child("draw", batch.task, self.position.step).torch(),
                self.live(),
                len(batch.labels) if self.settings.per_example else None,
            )
        heads = list(self.known) if self.settings.loss_over == "seen" else None
        scores: Tensor = self.network.learning(True)(
            batch.images, batch.task, self.selection, heads
        )
        return scores

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross-entropy over the task's classes, or over all seen, old heads being frozen."""
        scores = self.train_logits(batch)
        own = len(self.known[batch.task].classes)
        offset = scores.shape[1] - own
        return F.cross_entropy(scores, batch.labels + offset), scores[:, offset:]

    def slices(self) -> list[ActiveSlice]:
        assert self.selection is not None
        return list(self.selection.slices.values())

    def adjust_gradients(self, batch: Batch) -> None:
        """Drop gradients of protected edges and of units that `gradient_keep` leaves out."""
        drop_gradients(self)
        if self.position.step % DENSITY_EVERY == 0:
            self.density[0] += density(self)
            self.density[1] += 1

    def update(self) -> None:
        """SGD. While units compete, slices move without momentum and are written back at once."""
        lr = self.settings.lr * (1 - self.position.step / self.position.steps)
        for optimiser in self.optimisers:
            if not isinstance(optimiser, torch.optim.Adam):
                optimiser.param_groups[0]["lr"] = lr
            optimiser.step()
            optimiser.zero_grad()
        for part in self.slices():
            if self.competing:
                part.descend(lr, self.settings.weight_decay)
            part.guard()
            if self.competing:
                part.write_back()

    def own_parameters(self) -> Iterator[Tensor]:
        """Norms and head of the task being learned."""
        for layer in self.network.layers():
            yield from layer.norm.state(self.current).parameters()
        yield from self.network.heads[self.current].parameters()

    def prepare_competition(self) -> None:
        s = self.settings
        posteriors = [rivals.posteriors[self.current] for rivals in self.network.rivals()]
        own = torch.optim.SGD(
            self.own_parameters(), lr=s.lr, weight_decay=s.weight_decay, fused=True
        )
        if s.posterior_optimiser == "adam":
            self.optimisers = [own, torch.optim.Adam(posteriors, lr=s.posterior_lr, fused=True)]
        else:
            self.optimisers = [own, torch.optim.SGD(posteriors, lr=s.lr, fused=True)]

    # The competition ends ---------------------------------------------------------------------

    def conclude(self) -> bool:
        """End the competition or the trial that is still on; whether there was one."""
        if self.competing:
            self.settle()
        elif self.trial:
            self.decide()
        else:
            return False
        return True

    def settle(self) -> None:
        """Choose winners (Eq. 3), let the losers go; the ticket then trains as a small network."""
        if self.settings.protect == "none":  # what losers learned stays with them
            self.network.write_work()
        self.network.settle(self.current)
        for layer in self.network.layers():
            layer.norm.state(self.current).forget_statistics()
        self.competing = False
        self.prepare_settled()

    def decide(self) -> None:
        """End the trial: in every block the newcomer wins, or the ancestor's unit again."""
        moved = movement(self.network, self.trial)
        take_back(self.network, self.current, self.trial, self.win_again(moved))
        for layer in self.network.layers():
            layer.norm.state(self.current).forget_statistics()
        self.trial = ""
        gathered = self.optimisers[0].state_dict()  # momentum goes on
        self.prepare_settled()
        self.optimisers[0].load_state_dict(gathered)

    def win_again(self, moved: dict[RivalBlocks, Tensor]) -> dict[RivalBlocks, Tensor]:
        """Where the ancestor's unit wins, given how far newcomers moved: (blocks,) bool each."""
        return least(moved, self.settings.reuse)

    def prepare_settled(self) -> None:
        s, task = self.settings, self.current
        self.selection = Settled(task)
        for layer in self.network.layers():
            layer.work.values = layer.arrange(layer.work.values)
            rows, columns = (torch.arange(n) for n in layer.work.values.shape[:2])
            self.selection.weight(layer, rows, columns)
        leaves = [part.leaf for part in self.slices()]
        parameters = [*leaves, *self.own_parameters()]
        self.optimisers = [
            torch.optim.SGD(
                parameters, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, fused=True
            )
        ]

    def end_task(self, task: Task) -> None:
        if self.conclude():
            self.estimate_norms(task)
        for part in self.slices():
            part.write_back()
        trainable = [layer.work.trainable_share() for layer in self.network.layers()]
        if self.settings.protect == "edges":
            self.network.close(task.name)
        else:
            self.network.write_work()
        self.facts[task.name] = {
            "gradient_density": self.density[0] / max(1.0, self.density[1]),
            "trainable": {f"layer{i}": share for i, share in enumerate(trainable)},
            "free": self.network.room(),
            "units": [rivals.units for rivals in self.network.rivals()],
        }
        self.network.freeze(task.name)
        self.selection, self.optimisers, self.current = None, [], ""

    @torch.no_grad()
    def estimate_norms(self, task: Task) -> None:
        """Statistics of the winners, when no step follows in which they would be gathered."""
        seed = self.seed.child("estimate", task.name)
        for number, batch in enumerate(epoch([task], self.settings.batching, seed)):
            if number == ESTIMATION_BATCHES:
                break
            self.network.learning(True)(batch.images, task.name, self.selection)

    # Use --------------------------------------------------------------------------------------

    def logits(self, images: Tensor, task: str) -> Tensor:
        scores: Tensor = self.network.learning(False)(images, task)
        return scores

    @torch.no_grad()
    def masked_logits(self, images: Tensor, task: str) -> Tensor:
        """The same by all units, those that did not win times zero: what `Ticket.verify` asks."""
        scores: Tensor = self.network.learning(False)(images, task, Masked(task))
        return scores

    def ticket(self, task: str) -> fx.GraphModule:
        return self.network.cut(task)

    def winners(self, task: str) -> list[Tensor]:
        return [rivals.winners[task] for rivals in self.network.rivals()]

    def full_weights(self) -> int:
        classes = len(next(iter(self.known.values())).classes)
        return self.total + classes * (self.wide_features + 1)

    @property
    def nominal_share(self) -> float:
        return 1 / self.plan.settings.units

    def task_facts(self, task: str) -> dict[str, Any]:
        return self.facts[task]

    def drop(self, task: str) -> None:
        """Take a learned task out; the tickets of the others keep every bit."""
        self.network.drop(task)
        del self.known[task], self.facts[task]
        self.dropped = True

    def footprint(self) -> dict[str, int]:
        return twta_state.footprint(self)

    def state(self) -> State:
        return twta_state.save(self)

    def load(self, state: State) -> None:
        twta_state.load(self, state)
