"""IL2M: class-incremental learning with dual memory (Belouadah & Popescu 2019).

Each task is learned by cross-entropy over all classes seen, from its data and all exemplars,
without distillation. That favours new classes; a few floats undo it when the task is unknown.
Where the best score is that of a new class, an old class c of task t is raised after task s to

    score(c) · initial(c) / present(c) · confidence(s) / confidence(t)

initial       mean score of c over its training images, when it was learned
present       mean score of c over its exemplars, now
confidence    mean of the best score over the training images of a task, when it was learned

Deviations
- Scores are probabilities, as the paper says; the released pipeline takes logits (`score: logit`).
- The rows of old classes are kept when a task comes, as in FACIL; the original draws all anew.
- lr is divided by the number of the task (`falling_lr`), as in the original, and falls to 0 over
  each task, as in all methods here; all tasks have the same number of epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from rivals.baselines.memory.features import BATCH
from rivals.baselines.rehearsal import Rehearsal, RehearsalSettings
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Examples, Task

LEAST = 1e-8  # that a mean is divided by


class IL2MSettings(RehearsalSettings):
    """What is kept, and how scores are put right."""

    norms: Literal["task", "shared"] = "shared"
    lr: float = 0.1
    weight_decay: float = 1e-4
    budget: int = 20
    choice: Literal["herding", "random"] = Field(
        "herding", description="of exemplars: herding | random"
    )
    score: Literal["softmax", "logit"] = Field(
        "softmax", description="softmax | logit, as in the released pipeline"
    )
    rectify: bool = Field(True, description="false: plain fine-tuning with exemplars")
    falling_lr: bool = Field(True, description="lr divided by the number of the task")

    def check(self) -> None:
        super().check()
        self.need_shared_norms("the classes of all tasks compete")


@methods.register("il2m")
class IL2M(Rehearsal):
    """Fine-tuning with exemplars; statistics of scores put old classes right."""

    settings: IL2MSettings
    settings_class = IL2MSettings

    def __init__(self, plan: NetworkPlan, settings: IL2MSettings, seed: Seed) -> None:
        self.policy = "herding" if settings.choice == "herding" else "reservoir"
        super().__init__(plan, settings, seed)
        self.initial: dict[str, Tensor] = {}  # (classes,) of each task
        self.present: dict[str, Tensor] = {}  # (classes,) of each task
        self.confidence: dict[str, Tensor] = {}  # (1,) of each task

    def training_set(self, task: Task) -> Sequence[Task]:
        return [self.union(task)]

    def train_logits(self, batch: Batch) -> Tensor:
        network = self.network(batch.task).learning(True)
        scores: Tensor = network(self.prepared(batch), batch.task, heads=list(self.known))
        return scores

    def rate(self) -> float:
        return super().rate() / (len(self.known) if self.settings.falling_lr else 1)

    @torch.no_grad()
    def end_task(self, task: Task) -> None:
        super().end_task(task)
        with self.charged():
            for old in self.memory.tasks():
                kept = self.memory.all(old)
                self.present[old] = self.statistics(old, Examples(kept.raw, kept.labels))[0]
            means, best = self.statistics(task.name, task.train)
            self.initial[task.name] = self.present[task.name] = means
            self.confidence[task.name] = best
            self.choose(task)

    def choose(self, task: Task) -> None:
        """Exemplars of the new classes."""
        if self.settings.choice == "herding":
            self.memory.herd(task, partial(self.features, task=task.name))
            return
        images, labels = task.train.images, task.train.labels
        self.memory.observe(Batch(images, labels, task.name, torch.arange(len(labels)), images))

    def statistics(self, task: str, examples: Examples) -> tuple[Tensor, Tensor]:
        """Of raw images of one task: the mean score of each class over its own, (classes,), 1 for
        a class without any; and the mean of the best score, (1,)."""
        network, known = self.network(task).learning(False), self.known[task]
        classes, first, rows = len(known.classes), self.first_class(task), []
        for images in torch.split(examples.images, BATCH):
            logits = network(known.preprocessing(images), task, heads=list(self.known))
            rows.append(self.scale(logits))
        scores = torch.cat(rows)  # (n, classes seen)
        own = scores.gather(1, (first + examples.labels).unsqueeze(1)).squeeze(1)
        counts = F.one_hot(examples.labels, classes).sum(0)
        sums = torch.zeros(classes).index_add_(0, examples.labels, own)
        means = torch.where(counts > 0, sums / counts.clamp(min=1), torch.ones(classes))
        return means, scores.max(1).values.mean().view(1)

    def scale(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1) if self.settings.score == "softmax" else logits

    def probabilities(self, scores: Tensor, tasks: Sequence[str]) -> Tensor:
        """Rectified scores; "new" are the classes of the task that was learned last."""
        scores = self.scale(scores)
        if self.settings.rectify:
            last = tasks[-1]
            raised = [
                ratio(self.initial[t], self.present[t])
                * ratio(self.confidence[last], self.confidence[t])
                for t in tasks
            ]
            new = torch.arange(scores.shape[1]) >= self.first_class(last)
            scores = rectified(scores, torch.cat(raised), new)
        return F.normalize(scores, 1, 1) if self.settings.score == "softmax" else scores.softmax(1)

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "statistics": sum(t.nbytes for t in self.floats().values())}

    def floats(self) -> dict[str, Tensor]:
        """The second memory."""
        kinds = {
            "initial": self.initial, "present": self.present, "confidence": self.confidence,
        }  # fmt: skip
        return {f"{kind}/{task}": t for kind, found in kinds.items() for task, t in found.items()}

    def state(self) -> State:
        return {**super().state(), "statistics": StatePart(self.floats())}

    def load(self, state: State) -> None:
        super().load(state)
        for name, tensor in state["statistics"].tensors.items():
            kind, task = name.split("/", 1)
            getattr(self, kind)[task] = tensor


def ratio(above: Tensor, below: Tensor) -> Tensor:
    """above / below, where below is not too near to 0."""
    return above / torch.where(below.abs() < LEAST, torch.full_like(below, LEAST), below)


def rectified(scores: Tensor, raised: Tensor, new: Tensor) -> Tensor:
    """`scores` (n, classes), those of old classes times `raised` (classes,) in the rows whose best
    is of a `new` class; scores of new classes never change."""
    biased = new[scores.argmax(1)].unsqueeze(1)  # (n, 1)
    return torch.where(biased & ~new, scores * raised, scores)
