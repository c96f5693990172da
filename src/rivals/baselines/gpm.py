"""GPM, Gradient Projection Memory (Saha, Garg and Roy 2021).

After each task, every layer keeps an orthonormal basis of the space that its inputs filled. Later
gradients are made orthogonal to it, so old inputs go on producing what they produced.

Where this differs from the official code:
- A task has its own norm with running statistics, and trains it; `own=head` shares one norm that
  is learned in the first task and frozen afterwards, `statistics=batch` normalises test images by
  their own batch, both as official on CIFAR-100. Tickets always have running statistics.
- `own=nothing` shares the head too and projects it, as official on permuted MNIST; biases, which
  official networks do not have, are then learned in the first task only.
- lr falls linearly to 0 over a task (`schedule`); official code halves it when the validation loss
  stagnates, and takes the best weights of all epochs.
- Every layer sees all `samples`; official code takes fewer in early layers, to save time.
- Momentum is on by default, as for all methods here; official code has none. It sums gradients that
  were projected, and weight decay joins the gradient before that, so neither leaves the free
  directions.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rivals.baselines.sharing import Sharing, SharingSettings
from rivals.baselines.subspace import away_from, check_energy, collect, grow, thresholds
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task


class GPMSettings(SharingSettings):
    """How much of the inputs is protected."""

    energy: tuple[float, ...] = Field(
        (0.97,), description="share that a basis holds (ε): of every layer, or of each"
    )
    energy_step: float = Field(0.003, description="more of it with each task")
    energy_rule: Literal["reach", "below"] = Field(
        "reach", description="reach: at least that share | below: official, in the first task"
    )
    samples: int = Field(125, description="training images whose inputs are looked at")

    def check(self) -> None:
        super().check()
        check_energy(self.energy)
        self.not_negative("energy_step")
        self.at_least(1, "samples")


@methods.register("gpm")
class GPM(Sharing):
    """Fine-tuning whose gradients avoid the inputs of all tasks before."""

    settings: GPMSettings
    settings_class = GPMSettings

    def __init__(self, plan: NetworkPlan, settings: GPMSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        network = self.build("trial")
        sizes = [weight[0].numel() for weight in network.shared_parameters()]
        if settings.own == "nothing":
            sizes.append(network.features)
        self.bases = [torch.zeros(size, 0) for size in sizes]  # (features, k), one a layer
        thresholds(settings.energy, len(self.bases))

    # Learning ----------------------------------------------------------------------------------

    def guarded(self) -> list[Tensor]:
        """The weights that have a basis, layer by layer."""
        network = self.network(self.current)
        head = [network.heads[self.current].weight] if self.settings.own == "nothing" else []
        return [*network.shared_parameters(), *head]

    def trained(self) -> list[Tensor]:
        network, own = self.network(self.current), self.settings.own
        if own == "norm+head" or self.previous() is None:
            return super().trained()
        head = network.heads[self.current].parameters() if own == "head" else []
        return [*self.guarded(), *head]

    def adjust_gradients(self, batch: Batch) -> None:
        """G ← G − G M Mᵀ, weight decay included in G."""
        self.decay()
        for weight, basis in zip(self.guarded(), self.bases, strict=True):
            if basis.shape[1]:
                assert weight.grad is not None
                weight.grad = away_from(weight.grad, basis)

    def end_task(self, task: Task) -> None:
        """Widen the bases by what this task's inputs fill beyond them."""
        s, train = self.settings, task.train
        generator = self.seed.child("samples", task.name).torch()
        chosen = torch.randperm(len(train), generator=generator)[: s.samples]
        images = task.preprocessing(train.images[chosen])
        before = len(self.known) - 1
        with self.charged():
            inputs = collect(self.network(task.name), [(task.name, images)])[: len(self.bases)]
            for number, energy in enumerate(thresholds(s.energy, len(self.bases))):
                basis = self.bases[number]
                rule = "reach" if basis.shape[1] else s.energy_rule
                wanted = min(1.0, energy + s.energy_step * before)
                self.bases[number] = grow(basis, inputs[number], wanted, rule)
        self.spent += sum(each.decomposition_flops() for each in inputs)
        super().end_task(task)

    # Keeping -----------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "bases": sum(basis.nbytes for basis in self.bases)}

    def state(self) -> State:
        done = len(self.known) - bool(self.current)
        tensors = {f"layer{number}": basis for number, basis in enumerate(self.bases)}
        return {**super().state(), f"bases/{done}": StatePart(tensors, fixed=True)}

    def load(self, state: State) -> None:
        super().load(state)
        part = next(part for name, part in state.items() if name.startswith("bases/"))
        self.bases = [part.tensors[f"layer{number}"] for number in range(len(self.bases))]
