"""A network of rivals: tasks compete for its units, claim edges, and can be taken out again.

    open(task) ──► competing ──► settle(task) ──► settled ──► close(task) ──► claimed
                  (posteriors)                   (winners)                  (edges in use)

`reopen(task)` and `rewrite(task)` train a claim further where it is its own; `drop(task)` undoes
it. Whatever happens, the tickets of the other tasks keep every bit.

`adopt` gives unit 0 of every block to an ancestor, a network that was trained before all tasks.
Its claim is the first, so its edges are protected as those of a task are; it has no head, and it is
not saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx, nn

from rivals.naming.feature_space import FeatureSpace
from rivals.nn.blocks import RivalBlocks
from rivals.nn.competition import unit_ids
from rivals.nn.cut import Cutter
from rivals.nn.network import Network
from rivals.nn.selection import Selection, Winners
from rivals.nn.shared_weight import OwnedEdges, StoredWeight
from rivals.nn.stem import STEM, Stem
from rivals.nn.task_state import TaskTable
from rivals.nn.training_copy import SiblingCopy, TrainingCopy
from rivals.nn.twta_layers import TWTALayer
from rivals.seeds import Seed

SETTLED_BATCHES = 1000  # that the statistics of an ancestor count as the average of
ANCESTOR = ".ancestor"  # its name in the table of tasks; no task may begin with a dot


class RivalNetwork(Network):
    """Body of rival layers and heads.

    >>> import rivals, torch
    >>> from rivals.nn.activations import Flatten
    >>> from rivals.seeds import Seed
    >>> body = torch.nn.Sequential(Flatten(), rivals.TWTALinear(blocks=6, units=4))
    >>> network = rivals.RivalNetwork(body, input_shape=(1, 2, 5), seed=Seed(0))
    >>> network.open("a", classes=2, posteriors=[torch.randn(6, 4)])
    >>> network.settle("a")  # one unit of every block wins
    >>> network.close("a")  # the edges of the winners belong to the task
    >>> ticket = network.eval().cut("a")
    >>> [tuple(p.shape) for p in ticket.parameters()]
    [(6, 10), (6,), (2, 6), (2,)]
    """

    within: (
        Tensor  # the covariance of shared features, or one variance for all; where there are any
    )

    def __init__(
        self, body: nn.Module, input_shape: tuple[int, int, int], seed: Seed,
        tasks: TaskTable | None = None, stem: Stem | None = None,
    ) -> None:  # fmt: skip
        super().__init__(body, input_shape, seed, tasks, stem)
        if stem:
            self.register_buffer("within", torch.tensor([stem.spread]), persistent=False)
        self._space: FeatureSpace | None = None

    def layers(self) -> list[TWTALayer]:  # type: ignore[override]
        return [module for module in self.body.modules() if isinstance(module, TWTALayer)]

    def layers_of(self, task: str) -> list[TWTALayer]:
        """The layers that `task` has units in: none for a direct task, else all."""
        return [] if self.is_direct(task) else self.layers()

    def rivals_of(self, task: str) -> list[RivalBlocks]:
        """The same of the sets of rivals."""
        return [] if self.is_direct(task) else self.rivals()

    def attach(self) -> None:
        super().attach()
        for number, rivals in enumerate(self.rivals()):
            rivals.attach(self.tasks, number)

    def rivals(self) -> list[RivalBlocks]:
        """Every set of rivals once, in the order of the forward pass."""
        return list(dict.fromkeys(layer.rivals for layer in self.layers()))

    def selection(self, task: str) -> Selection:
        return Winners(task)

    def adopt(
        self, weights: Sequence[Tensor], norms: Sequence[Mapping[str, Tensor]], within: Tensor,
        space: FeatureSpace | None = None,
    ) -> None:  # fmt: skip
        """Give unit 0 of every block to an ancestor, before any task is opened.

        Args:
            weights: For each layer (row blocks, column blocks or input channels, taps).
            norms: For each layer scale, shift, mean and variance, (row blocks,) each.
            within: The covariance of its features around the means of classes, (d, d).
            space: What else is usual in its features, where that is known.
        """
        self._space = space
        self.register_buffer("within", within.to(self.device), persistent=False)
        for rivals in self.rivals():
            rivals.winners[ANCESTOR] = torch.zeros(rivals.blocks, dtype=torch.long).to(self.device)
        for layer, values, norm in zip(self.layers(), weights, norms, strict=True):
            rows, columns = layer.rivals.winner_ids(ANCESTOR), layer.ticket_columns(ANCESTOR)
            layer.norm.begin(ANCESTOR, len(rows), device=self.device)
            state = layer.norm.state(ANCESTOR)
            state.load({**norm, "batches": torch.tensor(float(SETTLED_BATCHES))})
            state.freeze()
            layer.weight.claim(ANCESTOR, rows, columns, values.to(self.device))

    @property
    def has_ancestor(self) -> bool:
        return ANCESTOR in self.tasks

    # Features that all tasks share, an ancestor's or a stem's -------------------------------------

    @property
    def shares_features(self) -> bool:
        """Whether there are features that never change, whatever is learned."""
        return self.has_ancestor or self.stem is not None

    @property
    def shared_width(self) -> int:
        """How many of them there are."""
        return len(self.within) if self.has_ancestor else self.direct_widths[STEM]

    @property
    def space(self) -> FeatureSpace:
        """Where tasks are named by these features."""
        if self._space is None:
            self._space = FeatureSpace(self.within.cpu().numpy())
        return self._space

    def shared_features(self, images: Tensor) -> Tensor:
        """These features of prepared images: (n, `shared_width`)."""
        if self.has_ancestor:
            return self.flow(images, ANCESTOR).values
        return self.direct_flow(images, STEM).values

    @torch.no_grad()
    def cut_features(self) -> fx.GraphModule:
        """They as a plain network: images → features."""
        cutter = Cutter()
        body = cutter.finish(self.shared_features(cutter.input()))
        body.eval()
        return body

    def settle_on_features(self, task: str, weight: Tensor, bias: Tensor) -> None:
        """Let a task be a head on these features, weight (classes, `shared_width`).

        With a stem it is a direct task. Else the ancestor wins all its blocks, and its norms are
        the ancestor's.
        """
        if self.stem:
            self.add_direct_head(task, weight, bias)
            return
        for rivals in self.rivals():
            rivals.winners[task] = rivals.winners[ANCESTOR].clone()
        for layer in self.layers():
            layer.norm.begin(task, layer.rivals.blocks, ANCESTOR, self.device)
            rows, columns = layer.rivals.winner_ids(task), layer.ticket_columns(task)
            layer.weight.claim(task, rows, columns, self.ticket_slice(layer, ANCESTOR))
        self.add_head(task, len(bias))
        self.heads[task].load({"weight": weight.view_as(self.heads[task].weight), "bias": bias})

    # The life of a task -------------------------------------------------------------------------

    def open(
        self,
        task: str,
        classes: int,
        posteriors: list[Tensor],
        ancestor: str | None = None,
        contenders: list[Tensor] | None = None,
        siblings: bool = False,
    ) -> None:
        """Start a competition: contenders (default all units) with their posteriors, norms, a head.

        With an ancestor, free edges and norms start as copies of that task's, block by block.
        `siblings` of a block share the values of their free edges, a norm and a column of the head.
        """
        for number, (rivals, log_posterior) in enumerate(
            zip(self.rivals(), posteriors, strict=True)
        ):
            rivals.compete(task, log_posterior, contenders[number] if contenders else None)
        for layer in self.layers():
            rows = unit_ids(layer.rivals.contenders[task])
            columns = torch.arange(layer.weight.columns, device=rows.device)
            if layer.source:
                columns = unit_ids(layer.source.contenders[task])
            old = self.ticket_slice(layer, ancestor) if ancestor else None
            if siblings:
                values = self.untrained_slice(layer, task) if old is None else old
                owned = OwnedEdges(layer.weight)
                layer.training_copy = SiblingCopy(rows, columns, values, owned)
            else:
                layer.training_copy = TrainingCopy.take(layer.weight, rows, columns, old)
            width = layer.rivals.blocks if siblings else len(rows)
            layer.norm.begin(task, width, ancestor, rows.device)
        width = 0
        if self.end:
            width = self.end.blocks if siblings else self.end.contenders[task].numel()
        self.add_head(task, classes, width)

    def untrained_slice(self, layer: TWTALayer, task: str) -> Tensor:
        """What the favourites of a task that competes are before any task."""
        columns = torch.arange(layer.weight.columns, device=self.device)
        if layer.source:
            columns = layer.source.favourite_ids(task)
        return layer.weight.untrained(layer.rivals.favourite_ids(task), columns)

    def settle(self, task: str) -> None:
        """End the competition: winners are chosen, what belongs to the losers is let go."""
        local = {rivals: rivals.settle(task) for rivals in self.rivals()}
        for layer in self.layers():
            rows = local[layer.rivals]
            columns = torch.arange(len(layer.training_copy.columns), device=rows.device)
            layer.training_copy = layer.training_copy.keep(
                rows, local[layer.source] if layer.source else columns
            )
            layer.norm.keep(task, rows % len(layer.norm.state(task).shift))
        if self.end:
            head = self.heads[task]
            head.keep(local[self.end] % head.weight.shape[1])

    def write_copies(self) -> None:
        """Write all that was trained into the shared weights, protecting nothing."""
        for layer in self.layers():
            assert isinstance(layer.weight, StoredWeight)
            if isinstance(layer.training_copy, SiblingCopy):
                continue  # losers learned nothing of their own
            layer.weight.write(
                layer.training_copy.rows, layer.training_copy.columns, layer.training_copy.values
            )

    def close(self, task: str) -> None:
        """Claim the edges of the ticket: they are in use from now on."""
        for layer in self.layers():
            copy = layer.training_copy
            layer.weight.claim(task, copy.rows, copy.columns, copy.values)

    def reopen(self, task: str) -> None:
        """Work on a claimed task again: the edges that it alone uses, its norms and its head."""
        for layer in self.layers_of(task):
            rows, columns = layer.rivals.winner_ids(task), layer.ticket_columns(task)
            alone = layer.weight.uses(rows, columns) == 1
            values = layer.weight.read(rows, columns)
            layer.training_copy = TrainingCopy(
                rows, columns, values, None if bool(alone.all()) else alone
            )
            layer.norm.keep(task, torch.arange(layer.rivals.blocks, device=rows.device))
        self.heads[task].thaw()

    def rewrite(self, task: str) -> None:
        """Keep what the work on a claimed task has changed; edges that others use are as before."""
        for layer in self.layers_of(task):
            layer.weight.put(task, layer.training_copy.values)
        self.freeze(task)

    def drop(self, task: str) -> None:
        """Take a task out. Edges others use move to the earliest of them; the rest is freed."""
        for layer in self.layers_of(task):
            layer.weight.release(task)
        self.tasks.drop(task)

    def freeze(self, task: str) -> None:
        """What belongs to `task` alone takes no gradients any more."""
        for layer in self.layers_of(task):
            layer.norm.state(task).freeze()
        self.heads[task].freeze()

    def grow(self, rivals: RivalBlocks) -> None:
        """One more rival in every block. Ids are appended, so old tickets keep every bit."""
        rivals.units += 1
        for layer in self.layers():
            layer.fit()

    def ticket_slice(self, layer: TWTALayer, task: str) -> Tensor:
        """The weights of `layer` that a ticket uses: (row blocks, column blocks, taps)."""
        return layer.weight.read(layer.rivals.winner_ids(task), layer.ticket_columns(task))

    def free_shares(self, rivals: RivalBlocks, chosen: dict[RivalBlocks, Tensor]) -> Tensor:
        """How free a unit's incoming edges are, given the units chosen so far: (blocks, units).

        Where the layer before has not chosen yet (the inner convolutions of a residual stage), all
        its units count.
        """
        shares = [
            layer.weight.free_share(chosen.get(layer.source) if layer.source else None)
            for layer in self.layers()
            if layer.rivals is rivals
        ]
        return torch.stack(shares).mean(0).view(rivals.units, rivals.blocks).T

    def trainable_share(
        self, layer: TWTALayer, rows: Tensor, chosen: dict[RivalBlocks, Tensor]
    ) -> float:
        """The share of free edges between `rows` of `layer` and the units chosen before it."""
        columns = torch.arange(layer.weight.columns, device=rows.device)
        if layer.source:
            columns = chosen[layer.source]
        return float(layer.weight.free(rows, columns).float().mean())

    def room(self) -> dict[str, float]:
        """The share of edges that no task uses, layer by layer."""
        return {f"layer{number}": layer.weight.room() for number, layer in enumerate(self.layers())}

    def weight_count(self) -> int:
        """How many shared weights there are."""
        return sum(layer.weight.numel for layer in self.layers())
