"""What a task has of its own, and what all tasks share: the switches that official codes differ by.

Here a task has its own norm and its own head. Official codes share more: GPM one norm on CIFAR-100,
GPM, La-MAML and FS-DGPM the whole network, head included, on permuted MNIST.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Literal, TypeVar

from pydantic import Field
from torch import Tensor

from rivals.baselines.controls import DenseSettings, Finetune
from rivals.errors import RivalsError
from rivals.learn.state import State
from rivals.nn.dense_network import DenseNetwork

Kind = TypeVar("Kind")


class SharingSettings(DenseSettings):
    """The parity switches."""

    width: Literal["ticket", "dense"] = "dense"
    own: Literal["norm+head", "head", "nothing"] = Field(
        "norm+head", description="what a task has of its own: norm+head | head | nothing"
    )
    statistics: Literal["running", "batch"] = Field(
        "running", description="of the norm at test time: running | batch, of the test images"
    )
    schedule: Literal["linear", "constant"] = Field(
        "linear", description="of lr over a task: linear, to 0 | constant"
    )

    def check(self) -> None:
        super().check()

    def at_least(self, low: int, *names: str) -> None:
        """Refuse counts below `low`."""
        for name in names:
            if getattr(self, name) < low:
                raise RivalsError(f"{name} is {getattr(self, name)}, but must be at least {low}.")

    def not_negative(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < float("inf"):
                raise RivalsError(f"{name} is {getattr(self, name)}, but must not be negative.")


class Sharing(Finetune):
    """Fine-tuning in which tasks share what `own` says."""

    settings: SharingSettings
    settings_class = SharingSettings

    def prepare(self) -> None:
        self.share()
        super().prepare()

    def load(self, state: State) -> None:
        super().load(state)
        self.share()

    def share(self) -> None:
        """Let all tasks use the norms, or the norms and the head, of the first one."""
        if self.settings.own == "norm+head":
            return
        for network in self.networks.values():
            for layer in network.layers():
                _all_the_first(layer.norm.tasks)
            if self.settings.own == "nothing":
                heads = network.heads
                if len({len(head.bias) for head in heads.values()}) > 1:
                    raise RivalsError(
                        "The tasks differ in their number of classes, so they cannot share a "
                        "head; use own=head or own=norm+head."
                    )
                _all_the_first(heads)

    def update(self) -> None:
        assert self.optimiser is not None
        if self.settings.schedule == "linear":
            super().update()
        else:
            self.optimiser.step()
            self.optimiser.zero_grad()

    def decay(self) -> None:
        """Let weight decay join the gradients now, to be projected with them, not afterwards."""
        assert self.optimiser is not None
        group = self.optimiser.param_groups[0]
        group["weight_decay"] = 0.0
        for weight in group["params"] if self.settings.weight_decay else []:
            if weight.grad is not None:
                weight.grad.add_(weight.detach(), alpha=self.settings.weight_decay)

    def logits(self, images: Tensor, task: str) -> Tensor:
        if self.settings.statistics == "running":
            return super().logits(images, task)
        network = self.network(task)
        with on_copies(network, task):
            scores: Tensor = network.learning(True)(images, task)
        return scores

    def footprint(self) -> dict[str, int]:
        """What several tasks share is counted once."""
        tensors = [t for network in self.networks.values() for t in network.tensors().values()]
        weights = {tensor.data_ptr(): tensor.nbytes for tensor in tensors}
        return {**super().footprint(), "weights": sum(weights.values())}


@contextmanager
def on_copies(network: DenseNetwork, task: str, keep: bool = False) -> Iterator[None]:
    """Run in training mode while the statistics of the task's norms move on copies.

    The copies are kept, or forgotten. In both cases a graph that waits for its backward pass, and
    may refer to the statistics it saw, finds them as they were.
    """
    states = [layer.norm.state(task) for layer in network.layers()]
    before = [(state.mean, state.var, state.batches) for state in states]
    for state in states:
        state.mean, state.var = state.mean.clone(), state.var.clone()
    try:
        yield
    finally:
        for state, (mean, var, batches) in zip(states, before, strict=True):
            if not keep:
                state.mean, state.var, state.batches = mean, var, batches


def _all_the_first(by_task: MutableMapping[str, Kind]) -> None:
    first = next(iter(by_task.values()))
    by_task.update(dict.fromkeys(by_task, first))
