"""GPM, Gradient Projection Memory (Saha, Garg and Roy 2021).

After each task, every layer keeps an orthonormal basis M of the space that its inputs filled. Later
gradients G are made orthogonal to it, so the layer's outputs for old inputs do not change:

    G ← G − G M Mᵀ

Deviations from the official code
- A task has its own norm with running statistics, and trains it. As official on CIFAR-100,
  `parity.task_specific=head` shares one norm that is learned in the first task and frozen
  afterwards, and `parity.eval_statistics=batch` normalises test images by their own batch. Tickets
  always have running statistics.
- `parity.task_specific=nothing` shares the head too and projects it, as official on permuted MNIST;
  biases, which official networks do not have, are then learned in the first task only.
- lr falls linearly to 0 over a task (`parity.lr_schedule`); official code halves it when the
  validation loss stagnates, and takes the best weights of all epochs.
- Every layer sees all samples; official code takes fewer in early layers, to save time.
- Momentum is on by default, as for all methods here; official code has none. It sums gradients that
  were projected, and weight decay is added to the gradient before that, so neither leaves the free
  directions.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rivals.baselines.dense_method import DenseMethod, DenseSettings, default
from rivals.baselines.official_switches import ParitySettings
from rivals.baselines.subspace import Subspace, SubspaceSettings, away_from, decay_gradients
from rivals.learn.method import methods
from rivals.learn.state import State
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task


class GPMSubspaceSettings(SubspaceSettings):
    """How much of the inputs is protected, and how directions are counted."""

    first_task_rule: Literal["reach", "below"] = Field(
        "reach",
        description="In the first task, hold at least the share `energy`, or one direction less as "
        "in the official code.",
    )


class GPMSettings(DenseSettings):
    """What is protected, and what tasks share."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    subspace: GPMSubspaceSettings = GPMSubspaceSettings()
    parity: ParitySettings = ParitySettings()

    def check(self) -> None:
        super().check()
        self.need_task_norms("parity.task_specific says here what tasks share")


@methods.register("gpm")
class GPM(DenseMethod):
    """Fine-tuning whose gradients avoid the inputs of all earlier tasks."""

    settings: GPMSettings
    settings_class = GPMSettings

    def __init__(self, plan: NetworkPlan, settings: GPMSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.parity = settings.parity
        heads = int(self.parity.task_specific == "nothing")  # one that all tasks share, projected
        layers = len(self.network().weights()) + heads
        self.subspace = Subspace(settings.subspace, layers, self.device)

    # Learning ----------------------------------------------------------------------------------

    def projected(self) -> list[Tensor]:
        """The weights that have a basis, layer by layer."""
        network = self.network(self.current)
        shared_head = self.parity.task_specific == "nothing"
        head = [network.heads[self.current].weight] if shared_head else []
        return [*network.shared_parameters(), *head]

    def trained(self) -> list[Tensor]:
        """All weights; from the second task on, without norms and biases that tasks share."""
        own = self.parity.task_specific
        if own == "norm+head" or self.previous() is None:
            return super().trained()
        head = self.network(self.current).heads[self.current]
        return [*self.projected(), *(head.parameters() if own == "head" else ())]

    def adjust_gradients(self, batch: Batch) -> None:
        """G ← G − G M Mᵀ, weight decay included in G."""
        decay_gradients(self.optimizer, self.settings.weight_decay)
        for weight, basis in zip(self.projected(), self.subspace.bases, strict=False):
            if basis.shape[1]:
                assert weight.grad is not None
                weight.grad = away_from(weight.grad, basis)

    def end_task(self, task: Task) -> None:
        """Extend the bases by what this task's inputs fill beyond them."""
        s, train = self.settings.subspace, task.train
        generator = self.seed.child("samples", task.name).torch()
        chosen = torch.randperm(len(train), generator=generator)[: s.samples]
        images = task.preprocessing(train.images[chosen].to(self.device))
        with self.charged():
            inputs = self.subspace.inputs(self.network(task.name), [(task.name, images)])
            self.subspace.extend(inputs, len(self.known) - 1, s.first_task_rule)
        self.spent += sum(each.decomposition_flops() for each in inputs)
        super().end_task(task)

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "bases": self.subspace.nbytes}

    def state(self) -> State:
        return {**super().state(), **self.subspace.state(len(self.known) - bool(self.current))}

    def load(self, state: State) -> None:
        super().load(state)
        self.subspace.load(state)
