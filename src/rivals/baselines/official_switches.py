"""Switches that bring a method closer to the official code of its paper.

By default every task has its own norm and head, and the learning rate falls to 0 over a task. The
official codes share more between tasks: GPM one norm on CIFAR-100; GPM, La-MAML and FS-DGPM the
whole network, head included, on permuted MNIST.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Literal, TypeVar

from pydantic import Field

from rivals.errors import RivalsError
from rivals.nn.dense_network import DenseNetwork
from rivals.settings import Settings

Kind = TypeVar("Kind")


class ParitySettings(Settings):
    """Where a method follows the official code instead of this library."""

    task_specific: Literal["norm+head", "head", "nothing"] = Field(
        "norm+head", description="What each task has of its own; tasks share everything else."
    )
    eval_statistics: Literal["running", "batch"] = Field(
        "running",
        description="Norm statistics at test time: the running averages, or those of the test "
        "batch.",
    )
    lr_schedule: Literal["linear", "constant"] = Field(
        "linear", description="The learning rate falls linearly to 0 over a task, or is constant."
    )


def share_between_tasks(network: DenseNetwork, settings: ParitySettings) -> None:
    """Let all tasks use the norms, or the norms and the head, of the first one."""
    if settings.task_specific == "norm+head":
        return
    for layer in network.layers():
        _use_first(layer.norm.tasks)
    if settings.task_specific == "nothing":
        if len({len(head.bias) for head in network.heads.values()}) > 1:
            raise RivalsError(
                "The tasks differ in their number of classes, so they cannot share a head; use "
                "task_specific=head or task_specific=norm+head."
            )
        _use_first(network.heads)


def _use_first(by_task: MutableMapping[str, Kind]) -> None:
    first = next(iter(by_task.values()))
    by_task.update(dict.fromkeys(by_task, first))


@contextmanager
def copied_statistics(network: DenseNetwork, task: str, keep: bool = False) -> Iterator[None]:
    """Run in training mode while the statistics of the task's norms change on copies.

    The copies are kept or dropped. In both cases a graph that still waits for its backward pass
    finds the statistics as it saw them.
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
