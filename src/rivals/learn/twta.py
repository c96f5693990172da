"""TWTA: the units of a block compete for each task, stochastically, and one wins it.

    a task comes    posteriors, and growth where room is short         make_room
    competition     a draw per step, gates, gradients of log π         train_logits, update
    settling        winners are chosen, losers are let go (Eq. 3)      settle
    training        the ticket trains as a small network               update
    claim           its edges are protected from then on               end_task

Differs from the paper by default; docs/paper.md gives the reason for each:
- units compete for the first fifth of a task's steps (`competition.share`), then the winners train
  alone; in the paper they compete to the last step;
- rivals are siblings (`competition.gating`): their free edges share one set of values, so every
  step trains what the winner will use, and one unit of a block is computed; in the paper all are
  (`relaxed`). With `competition.share=0` one draw decides and no image enters the choice;
- posteriors start normal, units with free edges ahead, and learn with Adam;
- units are ReLU, with a norm that belongs to the task; weights are initialised for the fan-in of
  the active units;
- the edges of a task are protected afterwards, free ones inherit from the task before, and the
  network grows when room runs short.
`--preset paper` is the literal recipe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, fx

from rivals.ancestors import NO_ANCESTOR
from rivals.ancestors.ancestor import shipped
from rivals.ancestors.stream_view import StreamForAncestor
from rivals.errors import RivalsError
from rivals.learn.method import Method, methods
from rivals.learn.state import State, StatePart, load_optimiser, optimiser_tensors
from rivals.learn.training_settings import TrainingSettings
from rivals.naming.discriminant import Head, discriminant
from rivals.naming.rule import Rule
from rivals.naming.shared_features import SharedFeatures
from rivals.nn import task_tensors
from rivals.nn.blocks import RivalBlocks
from rivals.nn.competition import active_count, anneal
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.optimisers import SGD, Adam
from rivals.nn.rival_network import ANCESTOR
from rivals.nn.selection import Draw, Masked, Settled, Siblings
from rivals.nn.shared_weight import StoredWeight
from rivals.nn.training_copy import ActiveSlice, SiblingCopy, TrainingCopy
from rivals.nn.twta_layers import TWTALayer
from rivals.seeds import Seed
from rivals.settings import Settings
from rivals.streams.batching import epoch
from rivals.streams.stream import Stream
from rivals.streams.task import Batch, Task
from rivals.tickets.parallel import SharedBodyTicket

DENSITY_EVERY = 20  # steps between two measurements of how dense the gradient is
ESTIMATION_BATCHES = 20  # to estimate norms anew when nothing is trained afterwards
GROWTH_ROUNDS = 8  # units that a block may gain before one task; one is usual
CERTAIN = 1e4  # log π that no other unit reaches
VIEWED = 64  # pictures that go through a stem at once
FIRST_HEAD = 0.15  # of the scores of a discriminant that a head starts as


# Settings --------------------------------------------------------------------------------------


class CompetitionSettings(Settings):
    """How the units of a block compete for a task."""

    share: float = Field(
        0.2, ge=0, le=1, description="share of a task's steps with competition; 0: one draw"
    )
    contenders: int = Field(
        0, ge=0, description="units of a block that compete, those with the largest log π; 0: all"
    )
    gating: Literal["siblings", "relaxed", "gated", "sparse"] = Field(
        "siblings",
        description="siblings: the free edges of all rivals share one set of values; relaxed: all "
        "units, scaled by the sample; gated: only the winner passes forward; sparse: only the best "
        "units of a sample are computed",
    )
    active: int = Field(1, ge=1, description="units of a block computed at first (sparse)")
    active_end: int = Field(1, ge=1, description="units computed when the competition ends")
    per_example: bool = Field(False, description="one draw per example, not per step (relaxed)")
    temperature: float = Field(
        0.67, gt=0, allow_inf_nan=False, description="of Gumbel-Softmax at the first step"
    )
    temperature_end: float = Field(
        0.01, gt=0, allow_inf_nan=False, description="and at the last step of the competition"
    )
    init_std: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="standard deviation of initial log π; 0: Glorot"
    )
    optimizer: Literal["adam", "sgd"] = Field("adam", description="for log π")
    lr: float = Field(
        0.02, ge=0, allow_inf_nan=False,
        description="Adam's learning rate for log π; 0: draws, but learns no posterior",
    )  # fmt: skip
    prefer_free: float = Field(
        20.0, ge=0, allow_inf_nan=False, description="added to log π of units with free edges only"
    )
    keep_gradients: Literal["all", "winner", "threshold"] = Field(
        "all", description="which units of a block keep their gradients"
    )
    gradient_threshold: float = Field(
        0.01, ge=0, le=1, description="least posterior that keeps its gradient (threshold)"
    )

    def check(self) -> None:
        if self.active_end > self.active:
            raise RivalsError(
                f"competition.active goes from {self.active} to {self.active_end}; the number of "
                "computed units must not rise, so lower active_end."
            )
        if self.per_example and self.gating != "relaxed":
            raise RivalsError(
                f"competition.per_example needs gating=relaxed, but gating is '{self.gating}'."
            )


class GrowthSettings(Settings):
    """When layers get more units."""

    enabled: bool = Field(True, description="false: a full network refuses further tasks")
    below: float = Field(
        0.25, ge=0, le=1, description="grow a layer if less of a new ticket could be trained"
    )


class TWTASettings(TrainingSettings):
    """How units compete, and what becomes of their edges."""

    competition: CompetitionSettings = CompetitionSettings()
    growth: GrowthSettings = GrowthSettings()
    protect: Literal["edges", "none"] = Field(
        "edges", description="edges: later tasks never change what a ticket uses"
    )
    inherit: Literal["previous", "none"] = Field(
        "previous", description="previous: free edges start as copies of the last ticket's"
    )
    new: float = Field(
        1.0, ge=0, le=1, description="share of blocks that a new unit wins, not the ancestor's"
    )
    loss_over: Literal["task", "seen"] = Field(
        "task", description="classes in the loss: the task's, or all seen, old heads frozen"
    )
    ancestor: Literal["none", "tiny", "small"] = Field(
        "none", description="a trained network that tickets start from; its shape replaces that of "
        "the network, and results say that the run is pretrained"
    )  # fmt: skip


# The method ------------------------------------------------------------------------------------


@methods.register("twta")
class TWTA(Method):
    """One shared network; a competition, a ticket and a claim for each task."""

    settings: TWTASettings
    settings_class = TWTASettings

    def __init__(self, plan: NetworkPlan, settings: TWTASettings, seed: Seed) -> None:
        pretrained = None if settings.ancestor == NO_ANCESTOR else shipped(settings.ancestor)
        if pretrained:
            plan = replace(plan, settings=pretrained.network(plan.settings.units))
        super().__init__(plan, settings, seed)
        stored = settings.protect == "none"
        self.network = plan.rivals(seed.child("network"), stored, self.tasks)
        if pretrained:
            pretrained.give_to(self.network)
        self.total = self.network.weight_count()  # before any growth
        self.wide_features = self.network.features * plan.settings.units
        self.facts: MutableMapping[str, dict[str, Any]] = self.tasks.column("facts")
        self.current = ""  # the task that is being learned
        self.competing = False
        self.selection: Draw | Siblings | Settled | None = None
        self.shared: dict[TWTALayer, ActiveSlice] = {}  # what siblings share while they compete
        self.optimisers: list[torch.optim.Optimizer] = []
        self.density = [0.0, 0.0]  # sum and number of measurements
        self.entropies: list[float] = []  # of the posteriors, when they start and when they settle
        self.favourites: list[Tensor] = []  # ids of the units with the largest log π at the start
        self.dropped = False  # then edges may have moved between tasks
        self.first_head: Head | None = None  # of the next task; None: random

    @classmethod
    def view_of(cls, stream: Stream, settings: TrainingSettings) -> Stream:
        pretrained = getattr(settings, "ancestor", NO_ANCESTOR) != NO_ANCESTOR
        return StreamForAncestor(stream) if pretrained else stream

    @property
    def pretrained(self) -> dict[str, str]:
        if self.settings.ancestor == NO_ANCESTOR:
            return {}
        return {"name": self.settings.ancestor, "sha256": shipped(self.settings.ancestor).sha256}

    # A task comes ------------------------------------------------------------------------------

    def begin_task(self, task: Task) -> None:
        s, ancestor = self.settings.competition, self.ancestor(task)
        posteriors = self.make_room(task.name)
        one_draw = self.compete_steps() == 0  # the posteriors decide as they start
        chosen = [favourites(each, 1 if one_draw else s.contenders) for each in posteriors]
        posteriors = [p.gather(1, c) for p, c in zip(posteriors, chosen, strict=True)]
        siblings = s.gating == "siblings" and not one_draw
        self.network.open(task.name, len(task.classes), posteriors, ancestor, chosen, siblings)
        if self.settings.ancestor != NO_ANCESTOR:
            self.first_head = self.head_on_ancestor(task)
        if self.first_head is not None:
            self.set_head(task.name, *self.first_head)
        self.current, self.competing, self.density = task.name, True, [0.0, 0.0]
        self.favourites = [rivals.favourite_ids(task.name) for rivals in self.network.rivals()]
        self.entropies = [] if one_draw else [self.entropy()]
        self.prepare_competition()
        if one_draw:
            self.settle()

    def ancestor(self, task: Task) -> str | None:
        """Whose ticket the free edges of a new task start as copies of."""
        if self.network.has_ancestor:
            return ANCESTOR
        if self.settings.inherit == "none":
            return None
        return next(
            (name for name in reversed(self.known) if not self.network.is_direct(name)), None
        )

    def make_room(self, task: str) -> list[Tensor]:
        """The posteriors a task starts with, the network having grown where room runs short.

        If the favourites would find too little to train, every block of the layer gets one more
        unit, which leaves all that was learned as it is.
        """
        growth = self.settings.growth
        for _ in range(GROWTH_ROUNDS):
            _, chosen = self.propose(task)
            shares = self.trainable_shares(chosen)
            low = [rivals for rivals, share in shares.items() if share < growth.below]
            if not growth.enabled:
                if max(shares.values()) == 0:
                    raise RivalsError(
                        f"The network is full: no edge is free for task '{task}'; "
                        "use growth.enabled=true, more units, or drop a task."
                    )
                break
            for rivals in low:
                self.network.grow(rivals)
            if not low:
                break
        return self.propose(task)[0]

    def propose(self, task: str) -> tuple[list[Tensor], dict[RivalBlocks, Tensor]]:
        """A posterior for each set of rivals, and the ids of the units it favours.

        log π ~ N(0, init_std²), plus `prefer_free` times the free share of a unit's incoming edges.
        """
        s, network, device = self.settings.competition, self.network, self.device
        posteriors: list[Tensor] = []
        chosen: dict[RivalBlocks, Tensor] = {}
        for number, rivals in enumerate(network.rivals()):
            std = s.init_std or math.sqrt(2 / (rivals.blocks + rivals.units))
            generator = self.seed.child("posterior", task, number).torch()
            log_posterior = torch.randn(rivals.blocks, rivals.units, generator=generator) * std
            log_posterior = log_posterior.to(device)
            if self.settings.protect == "edges":
                free = network.free_shares(rivals, chosen).to(device)
                log_posterior += self.preference() * free
            if network.has_ancestor:
                log_posterior[:, 0] = torch.where(
                    self.renewed(task, number, rivals), -CERTAIN, CERTAIN
                )
            posteriors.append(log_posterior)
            blocks = torch.arange(rivals.blocks, device=device)
            chosen[rivals] = log_posterior.argmax(1) * rivals.blocks + blocks
        return posteriors, chosen

    def renewed(self, task: str, number: int, rivals: RivalBlocks) -> Tensor:
        """The blocks that a new unit wins, chosen at random; the ancestor wins the others."""
        generator = self.seed.child("new", task, number).torch()
        order = torch.randperm(rivals.blocks, generator=generator).to(self.device)
        return order < round(self.settings.new * rivals.blocks)

    def preference(self) -> float:
        """What a unit with only free edges has ahead of one with none, in log π."""
        return self.settings.competition.prefer_free

    def trainable_shares(self, chosen: dict[RivalBlocks, Tensor]) -> dict[RivalBlocks, float]:
        """For each set of rivals, the least trainable share among the layers that it writes.

        Where the ancestor wins nothing is to be trained, so these units do not count.
        """
        shares: dict[RivalBlocks, float] = {}
        for layer in self.network.layers():
            rows = chosen[layer.rivals]
            if self.network.has_ancestor:
                rows = rows[rows >= layer.rivals.blocks]
            share = self.network.trainable_share(layer, rows, chosen) if len(rows) else 1.0
            shares[layer.rivals] = min(share, shares.get(layer.rivals, 1.0))
        return shares

    # Competition -------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        return f"compete {self.active()}" if self.competing else "settled"

    def compete_steps(self) -> int:
        return round(self.settings.competition.share * self.position.steps)

    def compete_progress(self) -> float:
        return self.position.step / max(1, self.compete_steps() - 1)

    def temperature(self) -> float:
        s = self.settings.competition
        return anneal(s.temperature, s.temperature_end, self.compete_progress())

    def active(self) -> int:
        s = self.settings.competition
        return active_count(s.active, s.active_end, self.compete_progress())

    def step_facts(self) -> dict[str, float]:
        found = {"lr": self.optimisers[0].param_groups[0]["lr"]}
        return {**found, "entropy": self.entropy()} if self.competing else found

    @torch.no_grad()
    def entropy(self) -> float:
        """Of the posteriors, mean over all blocks, in nats."""
        parts = []
        for rivals in self.network.rivals():
            log_posterior = torch.log_softmax(rivals.posteriors[self.current], 1)
            parts.append(-(log_posterior.exp() * log_posterior).sum(1))
        return float(torch.cat(parts).mean())

    def prepare_competition(self) -> None:
        s = self.settings
        posteriors = [rivals.posteriors[self.current] for rivals in self.network.rivals()]
        if s.competition.gating == "siblings" and self.compete_steps():
            for layer in self.network.layers():
                copy = layer.training_copy
                assert isinstance(copy, SiblingCopy)
                copy.values = layer.arrange(copy.values)
                self.shared[layer] = ActiveSlice.shared(copy)
            leaves = [part.leaf for part in self.shared.values()]
            own = self.momentum_sgd([*leaves, *self.own_parameters()])
        else:
            own = SGD(self.own_parameters(), lr=s.lr, weight_decay=s.weight_decay, fused=True)
        log_posteriors: torch.optim.Optimizer
        if s.competition.optimizer == "adam":
            log_posteriors = Adam(posteriors, lr=s.competition.lr, fused=True)
        else:
            log_posteriors = SGD(posteriors, lr=s.lr, fused=True)
        self.optimisers = [own, log_posteriors]

    def own_parameters(self) -> Iterator[Tensor]:
        """Norms and head of the task being learned."""
        for layer in self.network.layers_of(self.current):
            yield from layer.norm.state(self.current).parameters()
        yield from self.network.heads[self.current].parameters()

    def before_step(self, batch: Batch) -> None:
        if self.competing and self.position.step >= self.compete_steps():
            self.settle()

    def train_logits(self, batch: Batch) -> Tensor:
        s = self.settings.competition
        if self.competing:
            generator = self.seed.child("draw", batch.task, self.position.step).torch()
            if self.shared:
                self.selection = Siblings(batch.task, self.temperature(), generator, self.shared)
            else:
                self.selection = Draw(
                    batch.task, s.gating, self.temperature(), generator, self.active(),
                    len(batch.labels) if s.per_example else None,
                )  # fmt: skip
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
        loss = F.cross_entropy(scores, batch.labels + offset)
        return loss, scores[:, offset:]

    def slices(self) -> list[ActiveSlice]:
        assert self.selection is not None
        return list(self.selection.slices.values())

    def adjust_gradients(self, batch: Batch) -> None:
        """Zero the gradients of protected edges, and of units that `keep_gradients` leaves out."""
        assert self.selection is not None
        for layer, part in self.selection.slices.items():
            assert part.leaf.grad is not None
            if part.free is not None:
                part.leaf.grad *= part.free
            if self.competing and self.settings.competition.keep_gradients != "all":
                rows = self.selection.active(layer.rivals).ids
                part.hold(~self.kept_rows(layer.rivals, rows))
        if self.position.step % DENSITY_EVERY == 0:
            self.density[0] += self.gradient_density()
            self.density[1] += 1

    def kept_rows(self, rivals: RivalBlocks, rows: Tensor) -> Tensor:
        """Which active units keep their gradient: the draw's winner, or those above a threshold."""
        s = self.settings.competition
        if s.keep_gradients == "threshold":
            posterior = torch.softmax(rivals.posteriors[self.current].detach(), 1)
            return (posterior.T.flatten() >= s.gradient_threshold)[rows]
        assert self.selection is not None
        strength = self.selection.active(rivals).backward
        assert strength is not None
        if strength.dim() == 2:
            strength = strength.mean(0)
        best = strength.detach().view(-1, rivals.blocks).argmax(0)  # (active of a block, blocks)
        kept = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
        kept[best * rivals.blocks + torch.arange(rivals.blocks, device=rows.device)] = True
        return kept

    def gradient_density(self) -> float:
        """The share of the shared weights that this step moves."""
        gradients = [part.leaf.grad for part in self.slices() if part.leaf.grad is not None]
        moving = sum(int(gradient.count_nonzero()) for gradient in gradients)
        return moving / self.network.weight_count()

    def update(self) -> None:
        """SGD; units that compete with values of their own move without momentum."""
        lr = self.settings.lr * (1 - self.position.step / self.position.steps)
        for optimiser in self.optimisers:
            if not isinstance(optimiser, torch.optim.Adam):
                optimiser.param_groups[0]["lr"] = lr
            optimiser.step()
            optimiser.zero_grad()
        apart = self.competing and not self.shared  # every unit has values of its own
        for part in self.slices():
            if apart:
                part.descend(lr, self.settings.weight_decay)
            part.guard()
            if apart:
                part.write_back()

    # Settling ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Choose winners (Eq. 3), let the losers go; the ticket then trains as a small network."""
        if self.entropies:
            self.entropies.append(self.entropy())
        if self.settings.protect == "none":  # what losers learned stays with them
            self.network.write_copies()
        self.network.settle(self.current)
        for layer in self.network.layers():
            layer.norm.state(self.current).forget_statistics()
        self.competing = False
        buffers = optimiser_tensors(self.optimisers[0], "own") if self.shared else {}
        self.shared = {}
        self.prepare_settled()
        load_optimiser(self.optimisers[0], buffers, "own")  # of siblings, momentum goes on

    def prepare_settled(self) -> None:
        task = self.current
        self.selection = Settled(task)
        for layer in self.network.layers_of(task):
            layer.training_copy.values = layer.arrange(layer.training_copy.values)
            shape, device = layer.training_copy.values.shape, self.device
            rows, columns = (torch.arange(n, device=device) for n in shape[:2])
            self.selection.weight(layer, rows, columns)
        leaves = [part.leaf for part in self.slices()]
        self.optimisers = [self.momentum_sgd([*leaves, *self.own_parameters()])]

    def momentum_sgd(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        s = self.settings
        return SGD(
            parameters, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay, fused=True
        )

    @property
    def settled(self) -> bool:
        return not self.competing

    # The claim ---------------------------------------------------------------------------------

    def end_task(self, task: Task) -> None:
        if self.competing:
            self.settle()
            self.estimate_norms(task)
        for part in self.slices():
            part.write_back()
        trainable = [layer.training_copy.trainable_share() for layer in self.network.layers()]
        if self.settings.protect == "edges":
            self.network.close(task.name)
        else:
            self.network.write_copies()
        self.facts[task.name] = {
            **self.competition_facts(),
            "gradient_density": self.density[0] / max(1.0, self.density[1]),
            "trainable": {f"layer{i}": share for i, share in enumerate(trainable)},
            "free": self.network.room(),
            "units": [rivals.units for rivals in self.network.rivals()],
        }
        self.network.freeze(task.name)
        self.selection, self.optimisers, self.current = None, [], ""
        self.entropies, self.favourites = [], []

    def competition_facts(self) -> dict[str, Any]:
        """What the competition did: entropy of the posteriors, share of winners that it changed."""
        if not self.entropies:
            return {}
        won = torch.cat([rivals.winner_ids(self.current) for rivals in self.network.rivals()])
        changed = float((won != torch.cat(self.favourites)).float().mean())
        return {"entropy": self.entropies, "winners_changed": changed}

    @torch.no_grad()
    def estimate_norms(self, task: Task) -> None:
        """Statistics of the winners, when no step follows in which they would be gathered."""
        seed = self.seed.child("estimate", task.name)
        view = self.training_view(task)
        for number, batch in enumerate(epoch([view], self.settings.batching, seed)):
            if number == ESTIMATION_BATCHES:
                break
            self.network.learning(True)(batch.images.to(self.device), task.name, self.selection)

    # From an ancestor, whose features all tasks share --------------------------------------------

    @torch.no_grad()
    def head_on_ancestor(self, task: Task) -> Head:
        """What a new head starts as: the linear discriminant of the ancestor's features."""
        network, labels = self.network, task.train.labels.to(self.device)
        network.learning(False)
        rows = [
            network.shared_features(task.preprocessing(images.to(self.device)))
            for images in torch.split(task.train.images, VIEWED)
        ]
        weight, bias = discriminant(torch.cat(rows), labels, network.within)
        return FIRST_HEAD * weight, FIRST_HEAD * bias

    def set_head(self, task: str, weight: Tensor, bias: Tensor) -> None:
        """Give the head of `task` this weight (classes, features) and bias."""
        own = self.network.heads[task]
        own.load({"weight": weight.view_as(own.weight), "bias": bias})

    def naming_rule(self) -> Rule:
        if not self.network.shares_features:
            return super().naming_rule()
        none = torch.empty(0, self.network.shared_width, device=self.device)
        features = SharedBodyTicket(self.shared_body, none, none[:, 0])
        return SharedFeatures(self.network.space, features)

    @cached_property
    def shared_body(self) -> fx.GraphModule:
        """What all tasks share as a plain network: images → features."""
        return self.network.cut_features()

    # Use ---------------------------------------------------------------------------------------

    def logits(self, images: Tensor, task: str) -> Tensor:
        """Scores of the task's classes; of the task being learned, with its present weights."""
        present = self.selection if task == self.current and self.settled else None
        scores: Tensor = self.network.learning(False)(images, task, present)
        return scores

    def working_tensors(self) -> list[Tensor]:
        layers = self.network.layers_of(self.current)
        norms = [layer.norm.state(self.current) for layer in layers]
        statistics = [tensor for norm in norms for tensor in (norm.mean, norm.var)]
        return [*(part.leaf for part in self.slices()), *self.own_parameters(), *statistics]

    @torch.no_grad()
    def masked_logits(self, images: Tensor, task: str) -> Tensor:
        """The same by all units, those that did not win times zero: what `Ticket.verify` asks."""
        scores: Tensor = self.network.learning(False)(images, task, Masked(task))
        return scores

    def ticket(self, task: str) -> fx.GraphModule:
        return self.network.cut(task)

    def winners(self, task: str) -> list[Tensor]:
        return [rivals.winners[task] for rivals in self.network.rivals_of(task)]

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
        self.dropped, self._predictor = True, None

    # Saving ------------------------------------------------------------------------------------

    def state(self) -> State:
        """A part for each task that is done, one for the task being learned, a common one."""
        protected = self.settings.protect == "edges"
        common = self.common_part()
        common.facts["units"] = [rivals.units for rivals in self.network.rivals()]
        common.facts["facts"], common.facts["density"] = dict(self.facts), self.density
        common.facts["current"], common.facts["competing"] = self.current, self.competing
        common.facts["entropies"] = self.entropies
        common.facts["favourites"] = [ids.tolist() for ids in self.favourites]
        parts: State = {"common": common}
        for task in self.known:
            if task != self.current:
                tensors = partial(task_tensors.tensors, self.network, task, protected)
                parts[f"task/{task}"] = StatePart(tensors, fixed=protected and not self.dropped)
        if self.current:
            parts["working"] = StatePart(self._save_current())
        if not protected:
            weights = enumerate(self._stored_weights())
            parts["weights"] = StatePart({f"layer{i}.values": w.values for i, w in weights})
        return parts

    def load(self, state: State) -> None:
        """Bring a fresh method to a saved state, bit for bit."""
        protected = self.settings.protect == "edges"
        self.load_common(state["common"])
        facts = state["common"].facts
        self.density = facts["density"]
        self.current, self.competing = facts["current"], facts["competing"]
        self.entropies = facts.get("entropies", [])  # runs of 0.1 have none
        self.favourites = [torch.tensor(ids) for ids in facts.get("favourites", [])]
        for rivals, units in zip(self.network.rivals(), facts["units"], strict=True):
            rivals.units = units
        for layer in self.network.layers():
            layer.fit()
        for task in self.known:
            if task != self.current:
                task_tensors.load_task(self.network, task, state[f"task/{task}"].tensors)
                self.network.freeze(task)
                self.facts[task] = facts["facts"][task]
                if protected:
                    task_tensors.load_claims(self.network, task, state[f"task/{task}"].tensors)
        if not protected:
            for i, weight in enumerate(self._stored_weights()):
                weight.values = state["weights"].tensors[f"layer{i}.values"].to(self.device)
        if self.current:
            self._load_current(state["working"].tensors)

    def footprint(self) -> dict[str, int]:
        """Bytes of claimed weights, and of what else the tasks keep: winners, norms, heads.

        Those of an ancestor are counted, too: whoever continues needs it.
        """
        parts = self.state().values()
        tensors = [pair for part in parts for pair in part.tensors.items()]
        claimed = [t for name, t in tensors if name.endswith((".claimed", ".values"))]
        weights = sum(tensor.nbytes for tensor in claimed)
        rest = sum(tensor.nbytes for _, tensor in tensors) - weights
        needed = {"weights": weights, "tasks": rest}
        if self.settings.ancestor != NO_ANCESTOR:
            needed["ancestor"] = sum(
                t.nbytes for t in shipped(self.settings.ancestor).tensors.values()
            )
        return needed

    def _save_current(self) -> dict[str, Tensor]:
        """The task being learned: posteriors or winners, norms, head, training copies, buffers."""
        network, task, tensors = self.network, self.current, dict[str, Tensor]()
        for number, optimiser in enumerate(self.optimisers):
            tensors |= optimiser_tensors(optimiser, f"optimiser{number}")
        if self.competing:
            for i, rivals in enumerate(network.rivals()):
                tensors[f"rivals{i}.posterior"] = rivals.posteriors[task].detach()
                tensors[f"rivals{i}.contenders"] = rivals.contenders[task]
            tensors |= {f"head.{name}": t for name, t in network.heads[task].tensors().items()}
            for i, layer in enumerate(network.layers()):
                norm = layer.norm.state(task).tensors()
                tensors |= {f"layer{i}.norm.{name}": value for name, value in norm.items()}
        else:
            for part in self.slices():
                part.write_back()
            tensors |= task_tensors.task_tensors(network, task)
        for i, layer in enumerate(network.layers()):
            tensors[f"layer{i}.work"] = layer.training_copy.values
        return tensors

    def _load_current(self, tensors: dict[str, Tensor]) -> None:
        """The task being learned, as `_save_current` left it."""
        network, task = self.network, self.current
        tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        if self.competing:
            count = range(len(network.rivals()))
            posteriors = [tensors[f"rivals{i}.posterior"] for i in count]
            contenders = [tensors[f"rivals{i}.contenders"] for i in count]
            classes = len(self.known[task].classes)
            siblings = self.settings.competition.gating == "siblings"
            network.open(task, classes, posteriors, contenders=contenders, siblings=siblings)
            self._load_copies(tensors)
            network.heads[task].load({name: tensors[f"head.{name}"] for name in ("weight", "bias")})
            for i, layer in enumerate(network.layers()):
                state = layer.norm.state(task)
                state.load({name: tensors[f"layer{i}.norm.{name}"] for name in state.tensors()})
            self.prepare_competition()
        else:
            task_tensors.load_task(network, task, tensors)
            for layer in network.layers():
                rows, columns = layer.rivals.winner_ids(task), layer.ticket_columns(task)
                layer.training_copy = TrainingCopy.take(layer.weight, rows, columns, None)
            self._load_copies(tensors)
            self.prepare_settled()
        for number, optimiser in enumerate(self.optimisers):
            load_optimiser(optimiser, tensors, f"optimiser{number}")

    def _load_copies(self, tensors: dict[str, Tensor]) -> None:
        for i, layer in enumerate(self.network.layers()):
            layer.training_copy.values = tensors[f"layer{i}.work"]

    def _stored_weights(self) -> list[StoredWeight]:
        """The shared weights of an unprotected network."""
        weights = [layer.weight for layer in self.network.layers()]
        return [weight for weight in weights if isinstance(weight, StoredWeight)]


def favourites(log_posterior: Tensor, count: int) -> Tensor:
    """The units of each block with the largest log π, `count` of them (0: all): (blocks, count)."""
    count = min(count or log_posterior.shape[1], log_posterior.shape[1])
    return log_posterior.topk(count, dim=1).indices.sort(dim=1).values
