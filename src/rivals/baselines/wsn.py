"""WSN: Winning SubNetworks (Kang et al. 2022). A task uses the best-scored weights of each layer.

    W · 1[|score| among the largest `density`]      weights and scores are learned together
    ∂L/∂W = 0 where an earlier task uses W          so nothing is forgotten, and all may be read

Scores continue from task to task; the optimizer is new for each. The mask of a task is made from
the scores after its last step, and stored.

The ticket is the dense network with zeros in it: a mask of single weights shrinks no layer.
`retained` counts the weights that are not zero.

Deviations from the official code
- Norms belong to tasks and have running statistics, scale and shift; there test images are
  normalised by their own batch (`eval_statistics: batch`), without scale and shift.
- The learning rate falls linearly to 0 over a task; there it is halved when validation stops
  improving, and the best epoch is restored (weights only: the mask stays that of the last step).
- Adam's learning rate is `adam_lr_factor` · lr, so that recipes written for SGD work: 0.02 · 0.05
  is the official 1e-3.
- Old tasks are measured again; the official CIFAR script copies their accuracies.
"""

from __future__ import annotations

from typing import Any

import torch

from rivals.baselines.dense_method import DenseMethod
from rivals.baselines.official_switches import ParitySettings
from rivals.baselines.scored_network import (
    ScoredNetwork,
    ScoredSettings,
    ScoredTraining,
    load_mask_parts,
    mask_parts,
    scored_footprint,
)
from rivals.learn.method import methods
from rivals.learn.state import State
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task


class WSNSettings(ScoredSettings):
    """How many weights a task uses, and how they are trained."""


@methods.register("wsn")
class WSN(DenseMethod):
    """One network; a mask, a norm and a head for each task."""

    settings: WSNSettings
    settings_class = WSNSettings

    def __init__(self, plan: NetworkPlan, settings: WSNSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.parity = ParitySettings(eval_statistics=settings.eval_statistics)
        self.scored_training = ScoredTraining(settings)

    def build(self, tasks: TaskTable | None = None, seed: Seed | None = None) -> ScoredNetwork:
        s = self.settings
        seed = seed or self.seed.child("network")
        return ScoredNetwork.of(self.plan, seed, s.network_size, s.density, soft=False, tasks=tasks)

    def scored(self) -> ScoredNetwork:
        network = self.network()
        assert isinstance(network, ScoredNetwork)
        return network

    # Training ----------------------------------------------------------------------------------

    def prepare(self) -> None:
        super().prepare()
        self.scored_training.frozen = self.scored().used()

    def make_optimizer(self) -> torch.optim.Optimizer:
        return self.scored_training.make_optimizer(self.trained())

    def adjust_gradients(self, batch: Batch) -> None:
        self.scored_training.protect(self.scored())

    def rate(self) -> float:
        return self.scored_training.lr_factor * super().rate()

    def end_task(self, task: Task) -> None:
        self.scored().settle(task.name)
        super().end_task(task)

    # Results -----------------------------------------------------------------------------------

    @property
    def nominal_share(self) -> float:
        return self.settings.density

    def retained(self, task: str) -> int:
        """Weights in the mask, and all of biases and head."""
        network = self.scored()
        head, layers = network.heads[task], network.layers()
        own = head.weight.numel() + head.bias.numel() + sum(layer.width for layer in layers)
        return own + sum(int(layer.major(task).sum()) for layer in layers)

    def task_facts(self, task: str) -> dict[str, Any]:
        return {"retained": self.retained(task), "used": self.scored().used_shares()}

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        return scored_footprint(self.scored(), super().footprint())

    def state(self) -> State:
        done = [task for task in self.known if task != self.current]
        return {**super().state(), **mask_parts(self.scored(), done)}

    def load(self, state: State) -> None:
        load_mask_parts(self.scored(), state)
        super().load(state)
