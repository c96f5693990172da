"""IL2M: class-incremental learning with dual memory (Belouadah & Popescu 2019).

Each task is learned by cross-entropy over all classes seen, from its data and all exemplars,
without distillation. That favours new classes; a few statistics correct it if no task is given.
Where the best score is that of a new class, an old class c of task t is raised after task s to

    score(c) · initial(c) / present(c) · confidence(s) / confidence(t)

initial       mean score of c over its training images, when it was learned
present       mean score of c over its exemplars, now
confidence    mean of the best score over the training images of a task, when it was learned

Deviations from the official code
- Scores are probabilities, as the paper says; the released pipeline takes logits (`score: logit`).
- Heads of old classes are kept when a task comes, as in FACIL; the original starts all heads anew.
- lr is divided by the number of the task (`divide_lr_by_task`), as in the original, and falls to 0
  over each task, as in all methods here; all tasks have the same number of epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from rivals.baselines.dense_method import DenseMethod, DenseSettings, default
from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.baselines.memory.exemplar_stores import MemorySettings
from rivals.baselines.memory.herding import BATCH
from rivals.baselines.seen_classes import SeenClasses
from rivals.learn.method import methods
from rivals.learn.state import State, StatePart
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Examples, Task

SMALLEST = 1e-8  # divisor


class IL2MSettings(DenseSettings):
    """What is stored, and how scores are corrected."""

    network_size: Literal["ticket", "full"] = default(DenseSettings, "network_size", "full")
    shared_norms: bool = default(DenseSettings, "shared_norms", True)
    lr: float = default(DenseSettings, "lr", 0.1)
    weight_decay: float = default(DenseSettings, "weight_decay", 1e-4)
    memory: MemorySettings = MemorySettings(size=20, counted_in="class")
    exemplar_choice: Literal["herding", "random"] = Field(
        "herding", description="How exemplars are chosen from the training images."
    )
    score: Literal["softmax", "logit"] = Field(
        "softmax", description="Scores that are corrected; the released pipeline uses logits."
    )
    rectify: bool = Field(
        True, description="Correct the scores; false is plain fine-tuning with exemplars."
    )
    divide_lr_by_task: bool = Field(
        True, description="Divide the learning rate by the number of the task."
    )

    def check(self) -> None:
        super().check()
        self.need_shared_norms("the classes of all tasks compete")


@methods.register("il2m")
class IL2M(DenseMethod):
    """Fine-tuning with exemplars; statistics of scores correct the scores of old classes."""

    settings: IL2MSettings
    settings_class = IL2MSettings
    trains_all_heads = True
    memory: ExemplarMemory
    seen: SeenClasses

    def __init__(self, plan: NetworkPlan, settings: IL2MSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        policy = "herding" if settings.exemplar_choice == "herding" else "reservoir"
        self.memory = ExemplarMemory(
            settings.memory.budget, policy, seed.child("memory"), device=self.device
        )
        self.seen = SeenClasses(self.known, self.network, probabilities=self.probabilities)
        self.initial: dict[str, Tensor] = {}  # (classes,) of each task
        self.present: dict[str, Tensor] = {}  # (classes,) of each task
        self.confidence: dict[str, Tensor] = {}  # (1,) of each task

    def training_set(self, task: Task) -> Sequence[Task]:
        return [self.seen.union(task, self.memory)]

    def train_logits(self, batch: Batch) -> Tensor:
        return self.seen.train_scores(self.seen.preprocess(batch))

    def rate(self) -> float:
        return super().rate() / (len(self.known) if self.settings.divide_lr_by_task else 1)

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
        if self.settings.exemplar_choice == "herding":
            self.memory.herd(task, partial(self.seen.features, task=task.name))
            return
        images, labels = task.train.images, task.train.labels
        self.memory.observe(Batch(images, labels, task.name, torch.arange(len(labels)), images))

    def statistics(self, task: str, examples: Examples) -> tuple[Tensor, Tensor]:
        """Of raw images of one task: the mean score of each class over its own, (classes,), 1 for
        a class without any; and the mean of the best score, (1,)."""
        network, known = self.network(task).learning(False), self.known[task]
        classes, first, rows = len(known.classes), self.seen.first(task), []
        for images in torch.split(examples.images, BATCH):
            images = known.preprocessing(images.to(self.device))
            rows.append(self.scale(network(images, task, heads=list(self.known))))
        scores, labels = torch.cat(rows), examples.labels.to(self.device)  # (n, classes seen), (n,)
        own = scores.gather(1, (first + labels).unsqueeze(1)).squeeze(1)
        counts = F.one_hot(labels, classes).sum(0)
        sums = scores.new_zeros(classes).index_add_(0, labels, own)
        means = torch.where(counts > 0, sums / counts.clamp(min=1), torch.ones_like(sums))
        return means, scores.max(1).values.mean().view(1)

    def scale(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, 1) if self.settings.score == "softmax" else logits

    def probabilities(self, scores: Tensor, tasks: Sequence[str]) -> Tensor:
        """Corrected scores; new classes are those of the task that was learned last."""
        scores = self.scale(scores)
        if self.settings.rectify:
            last = tasks[-1]
            raised = [
                ratio(self.initial[t], self.present[t])
                * ratio(self.confidence[last], self.confidence[t])
                for t in tasks
            ]
            new = torch.arange(scores.shape[1], device=scores.device) >= self.seen.first(last)
            scores = rectified(scores, torch.cat(raised), new)
        return F.normalize(scores, 1, 1) if self.settings.score == "softmax" else scores.softmax(1)

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "statistics": sum(t.nbytes for t in self.tensors().values())}

    def tensors(self) -> dict[str, Tensor]:
        """The statistics of scores, which are the second memory of the paper."""
        kinds = {
            "initial": self.initial, "present": self.present, "confidence": self.confidence,
        }  # fmt: skip
        return {f"{kind}/{task}": t for kind, found in kinds.items() for task, t in found.items()}

    def state(self) -> State:
        return {**super().state(), "statistics": StatePart(self.tensors())}

    def load(self, state: State) -> None:
        super().load(state)
        for name, tensor in state["statistics"].tensors.items():
            kind, task = name.split("/", 1)
            getattr(self, kind)[task] = tensor.to(self.device)


def ratio(above: Tensor, below: Tensor) -> Tensor:
    """above / below, where below is not too near to 0."""
    return above / torch.where(below.abs() < SMALLEST, torch.full_like(below, SMALLEST), below)


def rectified(scores: Tensor, raised: Tensor, new: Tensor) -> Tensor:
    """`scores` (n, classes), those of old classes times `raised` (classes,) in the rows whose best
    is of a `new` class; scores of new classes never change."""
    biased = new[scores.argmax(1)].unsqueeze(1)  # (n, 1)
    return torch.where(biased & ~new, scores * raised, scores)
