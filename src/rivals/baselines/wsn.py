"""WSN: Winning SubNetworks (Kang et al. 2022). A task reads the best-scored weights of each layer.

    W · 1[|score| among the largest `density`]      weights and scores learned together
    ∂L/∂W = 0 wherever an earlier task has used W   so nothing is forgotten, and all may be read

Scores go on from task to task; the optimiser is new for each. The mask of a task is made from the
scores as they are after its last step, and kept.

The ticket is the dense network with zeros in it: a mask of single weights shrinks no layer.
`retained` counts the weights that are not zero.

Deviations from the official code
- Norms belong to tasks and have running statistics, scale and shift; there test images are
  normalised by their own batch (`statistics: batch`), without scale and shift.
- The step size falls in a line to 0 over a task; there it is halved when validation stops
  improving, and the best epoch is put back (weights only: the mask stays that of the last step).
- Adam's step is `adam_step` · lr, so that recipes written for SGD serve: 0.02 · 0.05 is its 1e-3.
- Old tasks are measured again; the official CIFAR script copies their accuracies.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from rivals.baselines.controls import DenseSettings, Finetune
from rivals.baselines.scored_network import ScoredNetwork
from rivals.baselines.sharing import on_copies
from rivals.errors import RivalsError
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.task_state import TaskTable
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task


class WSNSettings(DenseSettings):
    """How many weights a task reads, and how they are found."""

    width: Literal["ticket", "dense"] = "dense"
    density: float = Field(0.5, description="c, of every layer; the head is always whole")
    optimizer: Literal["adam", "sgd"] = Field(
        "adam", description="adam | sgd, of weights, scores, norm and head alike"
    )
    adam_step: float = Field(0.02, description="Adam's step as a share of lr")
    statistics: Literal["running", "batch"] = Field(
        "running", description="of norms at test time: running | batch, of the test images"
    )

    def check(self) -> None:
        super().check()
        if self.norms != "task":
            raise RivalsError(f"norms is '{self.norms}', but nothing protects them here; use task.")
        if not 0 < self.density <= 1:
            raise RivalsError(f"density is {self.density}, but is a share above 0, at most 1.")
        if not 0 < self.adam_step < math.inf:
            raise RivalsError(f"adam_step is {self.adam_step}, but must be positive.")


@methods.register("wsn")
class WSN(Finetune):
    """One network, a mask, a norm and a head for each task."""

    settings: WSNSettings
    settings_class = WSNSettings
    soft = False

    def __init__(self, plan: NetworkPlan, settings: Any, seed: Seed) -> None:
        self.frozen: list[Tensor] = []  # weights that earlier tasks use, layer by layer
        super().__init__(plan, settings, seed)

    def build(self, task: str, tasks: TaskTable | None = None) -> ScoredNetwork:
        s, seed = self.settings, self.seed.child("network")
        return ScoredNetwork.of(self.plan, seed, s.width, s.density, self.soft, tasks)

    def scored(self) -> ScoredNetwork:
        network = self.network("shared")
        assert isinstance(network, ScoredNetwork)
        return network

    def trained(self) -> list[Tensor]:
        network = self.scored()
        return [*network.weights(), *network.scores(), *network.task_parameters(self.current)]

    def prepare(self) -> None:
        s = self.settings
        self.frozen = self.scored().used()
        if s.optimizer == "adam":
            self.optimiser = torch.optim.Adam(self.trained(), lr=s.lr, fused=True)
        else:
            self.optimiser = torch.optim.SGD(self.trained(), lr=s.lr, momentum=s.momentum)

    def adjust_gradients(self, batch: Batch) -> None:
        """Decay, then zeros where earlier tasks are at home: so no optimiser can move them."""
        for weight, frozen in zip(self.scored().weights(), self.frozen, strict=True):
            assert weight.grad is not None
            if self.settings.weight_decay:
                weight.grad.add_(weight.detach(), alpha=self.settings.weight_decay)
            weight.grad.masked_fill_(frozen, 0)

    def rate(self) -> float:
        share = self.settings.adam_step if self.settings.optimizer == "adam" else 1.0
        return share * super().rate()

    def end_task(self, task: Task) -> None:
        self.scored().settle(task.name)
        self.frozen = []
        super().end_task(task)

    def logits(self, images: Tensor, task: str) -> Tensor:
        if self.settings.statistics == "running":
            return super().logits(images, task)
        network = self.scored()
        with on_copies(network, task):  # tickets have running statistics all the same
            scores: Tensor = network.learning(True)(images, task)
        return scores

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
        """Weights that are not zero, and the share of all weights that some task uses."""
        used = enumerate(self.scored().used())
        shares = {f"layer{number}": float(mask.float().mean()) for number, mask in used}
        return {"retained": self.retained(task), "used": shares}

    def footprint(self) -> dict[str, int]:
        layers = self.scored().layers()
        scores = sum(layer.scores.nbytes for layer in layers)
        found = super().footprint()
        return {
            **found,
            "weights": found["weights"] - scores,
            "scores": scores,
            "masks": sum(mask.nbytes for layer in layers for mask in layer.masks.values()),
        }

    def state(self) -> State:
        done = [task for task in self.known if task != self.current]
        masks = {f"masks/{task}": StatePart(self.scored().masks(task), fixed=True) for task in done}
        return {**super().state(), **masks}

    def load(self, state: State) -> None:
        for name, part in state.items():
            if name.startswith("masks/"):
                self.scored().load_masks(name.removeprefix("masks/"), part.tensors)
        super().load(state)
