"""A network: a body that all tasks share, a head for each task, and `network(images, task)`.

There may be a frozen stem before the body, and direct tasks, whose heads read no body: see
`nn/stem.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, fx, nn

from rivals.errors import RivalsError
from rivals.nn.activations import Activations, EdgeGrid, Flatten, SmallPixels
from rivals.nn.convolve import channels_last
from rivals.nn.cut import Cutter, run
from rivals.nn.dense_layers import DenseLayer
from rivals.nn.head import DirectHead, Head, heads_of
from rivals.nn.plain_layers import Gradients
from rivals.nn.selection import Selection, Wiring
from rivals.nn.stem import EDGES, PIXELS, STEM, Stem
from rivals.nn.task_state import TaskTable
from rivals.nn.twta_layers import TWTALayer
from rivals.seeds import Seed


class Network(nn.Module):
    """Body and heads. The task is an argument; nothing remembers which one came last."""

    place: Tensor

    def __init__(
        self, body: nn.Module, input_shape: tuple[int, int, int], seed: Seed,
        tasks: TaskTable | None = None, stem: Stem | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.body, self.seed, self.input_shape = body, seed, input_shape
        self.stem = stem
        direct: dict[str, nn.Module] = {STEM: Flatten()}
        if stem is None:
            direct = {PIXELS: SmallPixels(*input_shape[1:])}
            if min(input_shape[1:]) >= Gradients.LEAST:
                direct[EDGES] = EdgeGrid(*input_shape[1:])
        self.direct_inputs = nn.ModuleDict(direct)
        self.tasks = TaskTable() if tasks is None else tasks
        self.heads = heads_of(self.tasks)
        self.register_buffer("place", torch.empty(0), persistent=False)  # knows the device
        self.attach()
        for number, layer in enumerate(self.layers()):
            layer.seed = seed.child("layer", number).value
        shape = (stem.features, 1, 1) if stem else input_shape
        start = Activations(torch.zeros(1, *shape), "", Wiring(""))
        with torch.no_grad():
            end: Activations = body(start)
        if end.values.dim() != 2:
            raise RivalsError(
                f"The network's body ends in the shape {tuple(end.values.shape[1:])}, but heads "
                "need a row of features; end it with Flatten or GlobalPool."
            )
        self.end = end.source  # the rivals whose winners the heads read; None in a dense network
        active = end.source.blocks if end.source else end.values.shape[1]
        self.positions = end.values.shape[1] // active
        self.features = end.values.shape[1]
        self.direct_widths: dict[str, int] = {  # of pictures no two are the same
            kind: read(start).values.shape[1] for kind, read in self.direct_inputs.items()
        }
        with torch.no_grad():  # a trial cut: what a ticket cannot hold is refused before training
            cutter = Cutter()
            cutter.finish(body(Activations(cutter.input(), "", Wiring(""))).values)

    def attach(self) -> None:
        """Let all layers keep what belongs to tasks in this network's table."""
        for number, layer in enumerate(self.layers()):
            layer.attach(self.tasks, number)

    @property
    def device(self) -> torch.device:
        return self.place.device

    def layers(self) -> list[TWTALayer | DenseLayer]:
        """The layers with weights, in the order of the forward pass."""
        return [m for m in self.body.modules() if isinstance(m, TWTALayer | DenseLayer)]

    def learning(self, on: bool) -> Network:
        """Training mode or not. Modules are walked only when that changes."""
        return self if self.training == on else self.train(on)

    def selection(self, task: str) -> Selection:
        """Which units are active at inference; dense layers do not ask."""
        return Selection(task)

    def flow(self, images: Tensor, task: str, selection: Selection | None = None) -> Activations:
        """The features of `images`, ready for the head of `task`, or for any that reads the same.

        Where there is a stem, its features (n, d, 1, 1) may come in place of the images.
        """
        start = self.start(images, task, selection or self.selection(task))
        direct = self.direct_kind(task)
        flow: Activations = (self.direct_inputs[direct] if direct else self.body)(start)
        return flow

    def direct_flow(self, images: Tensor, kind: str) -> Activations:
        """What direct heads of a kind read."""
        flow: Activations = self.direct_inputs[kind](self.start(images, "", Wiring("")))
        return flow

    def start(self, images: Tensor, task: str, selection: Selection) -> Activations:
        """What the body reads: the images, or the stem's features (n, d) of them."""
        values = channels_last(images)
        return Activations(run(self.stem, values) if self.stem else values, task, selection)

    def is_direct(self, task: str) -> bool:
        """Whether the head of `task` reads no body."""
        return isinstance(self.heads.get(task), DirectHead)

    def direct_kind(self, task: str) -> str:
        """What the head of a direct task reads, by its width; empty for tasks with a body."""
        head = self.heads.get(task)
        if not isinstance(head, DirectHead):
            return ""
        return next(k for k, width in self.direct_widths.items() if width == head.weight.shape[1])

    def forward(
        self,
        images: Tensor,
        task: str,
        selection: Selection | None = None,
        heads: Sequence[str] | None = None,
    ) -> Tensor:
        """Scores of the task's classes; with `heads`, of all these tasks' classes side by side."""
        flow = self.flow(images, task, selection)
        scores = [self.heads[name](flow) for name in heads or (task,)]
        return scores[0] if len(scores) == 1 else torch.cat(scores, dim=1)

    def add_head(self, task: str, classes: int, width: int = 0) -> None:
        """A fresh head on `width` units of the last layer, or on all features of a dense one."""
        width = width or self.features
        active = self.end.blocks if self.end else self.features
        positions = self.positions if self.end else 1
        seed = self.seed.child("head", task).value
        self.heads[task] = Head(classes, width, positions, active, seed).to(self.device)

    def add_direct_head(self, task: str, weight: Tensor, bias: Tensor) -> None:
        """A finished head that reads no body; its width, one of `direct_widths`, says what."""
        head = DirectHead(*weight.shape)
        head.load({"weight": weight.unsqueeze(2), "bias": bias})
        self.heads[task] = head.to(self.device)

    @torch.no_grad()
    def cut(self, task: str) -> fx.GraphModule:
        """The small network of `task`: ordinary layers, norm folded in, nothing of ours inside.

        A stem is one of its layers, the same object for all tasks.
        """
        cutter = Cutter()
        flow = self.flow(cutter.input(), task)
        ticket = cutter.finish(self.heads[task](flow))
        ticket.eval()
        return ticket
