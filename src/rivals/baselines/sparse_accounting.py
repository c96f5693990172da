"""Methods whose weights are mostly zeros: steps are charged by density, tickets counted without."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rivals.baselines.controls import Finetune
from rivals.baselines.sparse_cost import head_flops, layer_flops, step_share
from rivals.learn.method import StepResult
from rivals.learn.state import State, StatePart
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Task


class ByDensity(Finetune):
    """Counts dense FLOPs and charges the share of them that zeros leave, as RigL does."""

    def __init__(self, plan: NetworkPlan, settings: Any, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.dense_flops = 0.0  # of the present task, if zeros are multiplied, too
        self.layer_flops: list[float] = []  # of one image forward, once they are needed

    def densities(self) -> tuple[list[float], list[float]]:
        """Of the weights and of their gradients, layer by layer; empty: nothing is pruned yet."""
        raise NotImplementedError

    def begin_task(self, task: Task) -> None:
        self.dense_flops = 0.0
        super().begin_task(task)

    def counted_step(self, batch: Batch) -> StepResult:
        weights, gradients = self.densities()
        network, before, share = self.network("shared"), self.spent, 1.0
        if weights:
            self.layer_flops = self.layer_flops or layer_flops(network)
            share = step_share(self.layer_flops, head_flops(network), weights, gradients)
        result = super().counted_step(batch)
        dense = self.spent - before
        self.dense_flops, self.spent = self.dense_flops + dense, before + dense * share
        return result

    def retained(self, task: str) -> int:
        """Of the network as it is now, which all tasks share."""
        return sum(int(p.count_nonzero()) for p in self.ticket(task).parameters())

    def task_facts(self, task: str) -> dict[str, Any]:
        """Also what a machine without sparse kernels pays."""
        return {"retained": self.retained(task), "flops_dense": self.dense_flops}

    def state(self) -> State:
        return {**super().state(), "account": StatePart(facts={"dense_flops": self.dense_flops})}

    def load(self, state: State) -> None:
        super().load(state)
        self.dense_flops = state["account"].facts["dense_flops"]


def share_left(mask: Tensor) -> float:
    """Of a mask, what it lets through."""
    return int(mask.sum()) / mask.numel()
