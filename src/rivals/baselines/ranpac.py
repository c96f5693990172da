"""RanPAC: random projections of frozen features (McDonnell et al. 2023).

    h = ReLU(W φ(x)),  W random,   scores = (G + λI)⁻¹ Q applied to h,   G = Σ h hᵀ,   Q = Σ h yᵀ

That is ridge regression on the classes: G takes out what all classes have in common. G and Q are
sums, so the solution is that of all tasks at once. λ is chosen anew after each task: of seventeen
powers of ten, the one whose solution from four fifths of the task is best on the last fifth.

Deviations from the paper
- 2,000 projected features by default instead of 10,000: G has 16 MB instead of 400.
- φ is the ancestor as it is; the paper may first adapt it to the first task (its phase 1).
- One solve per task is not among the FLOPs: only products are counted, as everywhere here.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from rivals.baselines.frozen_method import FrozenMethod, FrozenSettings, exact, unless_empty
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.naming.ridge import Ridge
from rivals.nn.cut import linear
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Task

RIDGES = tuple(10.0**exponent for exponent in range(-8, 9))
FITTED = 0.8  # of a task's pictures, when λ is chosen on the others


class RanPACSettings(FrozenSettings):
    """How many random features, and the penalty of the regression."""

    projected: int = Field(
        2000, ge=1, le=20_000, description="Random features; the paper has 10,000."
    )
    ridge: float = Field(
        0.0,
        ge=0,
        description="The penalty; 0 chooses it after each task on a fifth of its images.",
    )


@methods.register("ranpac")
class RanPAC(FrozenMethod):
    """Keeps sums of random features, and solves a ridge regression."""

    settings: RanPACSettings
    settings_class = RanPACSettings
    keeps_products = True

    def __init__(self, plan: NetworkPlan, settings: RanPACSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.ridge = settings.ridge or 1.0
        self.recent: list[tuple[Tensor, Tensor]] = []  # features and labels of the present task

    def transforms(self, width: int) -> list[nn.Module]:
        generator = self.seed.child("projection").torch()
        weight = torch.randn(self.settings.projected, width, generator=generator)
        return [*super().transforms(width), linear(weight, None), nn.ReLU()]

    def remember(self, features: Tensor, labels: Tensor) -> None:
        if not self.settings.ridge:
            self.recent.append((features, labels))

    def end_task(self, task: Task) -> None:
        with self.charged(), torch.no_grad():
            self.choose_ridge(len(task.classes))
        super().end_task(task)

    def choose_ridge(self, classes: int) -> None:
        """The penalty that is best on the last fifth of the task, which came in random order."""
        features, labels = self.seen()
        self.recent = []
        fitted = int(FITTED * len(labels))
        if not 0 < fitted < len(labels):
            return  # a task of a few pictures, or a ridge that is given: nothing to choose by
        rows = exact(self.transform(features))
        targets = F.one_hot(labels.to(rows.device), classes).to(rows)
        regression = Ridge(rows[:fitted], targets[:fitted])

        def error(ridge: float) -> float:
            apart = rows[fitted:] @ regression.weights(ridge) - targets[fitted:]
            return float(apart.square().mean())

        self.ridge = min(RIDGES, key=error)
        self._heads = {}

    def seen(self) -> tuple[Tensor, Tensor]:
        """Features and labels of the present task so far."""
        if not self.recent:
            return torch.empty(0, device=self.device), torch.empty(0, device=self.device)
        features, labels = (torch.cat(part) for part in zip(*self.recent, strict=True))
        return features, labels

    def heads(self, task: str) -> dict[str, nn.Sequential]:
        own = [self.sums[name].to_dict() for name in self.sums]
        targets = exact(torch.cat([each["rows"] for each in own]))  # (classes, d)
        count = torch.cat([each["count"] for each in own]).to(targets.device)
        gram = exact(self.products)
        penalty = self.ridge * torch.eye(self.width).to(gram)
        weight = torch.linalg.solve(gram + penalty, targets.T).T
        return self.split(weight, unless_empty(count, torch.zeros_like(weight[:, 0])))

    def task_facts(self, task: str) -> dict[str, Any]:
        return {"ridge": self.ridge}

    def footprint(self) -> dict[str, int]:
        recent = sum(tensor.nbytes for pair in self.recent for tensor in pair)
        return {**super().footprint(), "features": recent}

    def state(self) -> State:
        parts = super().state()
        parts["common"].facts["ridge"] = self.ridge
        if self.recent:
            parts["recent"] = StatePart(dict(zip(("features", "labels"), self.seen(), strict=True)))
        return parts

    def load(self, state: State) -> None:
        super().load(state)
        self.ridge = state["common"].facts["ridge"]
        if "recent" in state:
            tensors = state["recent"].tensors
            self.recent = [(tensors["features"].to(self.device), tensors["labels"].to(self.device))]
