"""What methods that keep exemplars share: a memory, and answers over all classes seen so far.

Heads of different tasks compete only if they read the same features, so a class-incremental method
has one norm for all tasks. It may train on a union: new data and exemplars as one set, in which
batches mix tasks and labels count over all classes seen, task after task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rivals.baselines.controls import DenseSettings, Finetune
from rivals.baselines.memory.exemplar_budget import Budget
from rivals.baselines.memory.exemplars import ExemplarMemory
from rivals.baselines.remembering import Remembering
from rivals.errors import RivalsError
from rivals.naming.task_record import Prediction
from rivals.nn.activations import Activations
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed
from rivals.streams.task import Batch, Examples, Preprocessing, Task

PIXELS = Preprocessing(scale=1.0, mean=(0.0,), std=(1.0,))  # leaves pixels as they are


class RehearsalSettings(DenseSettings):
    """How much is kept of the past."""

    width: Literal["ticket", "dense"] = Field(
        "dense", description="these methods were made for networks of full width"
    )
    budget: int = Field(10, description="of the memory, in")
    budget_in: Literal["class", "images", "bytes"] = Field(
        "class", description="class: images of each class | images: in all | bytes"
    )

    @property
    def kept(self) -> Budget:
        names = {"class": "per_class", "images": "total", "bytes": "bytes"}
        return Budget(**{names[self.budget_in]: self.budget})

    def check(self) -> None:
        super().check()
        if self.budget < 1:
            raise RivalsError(f"budget is {self.budget}, but must be at least 1.")

    def need_shared_norms(self, why: str) -> None:
        """Refuse norms of tasks where classes of all tasks compete."""
        if self.norms != "shared":
            raise RivalsError(f"norms is '{self.norms}', but {why}; use shared.")


class Rehearsal(Remembering, Finetune):
    """Fine-tuning of one network and all its heads, with a memory of exemplars."""

    settings: RehearsalSettings
    policy = "reservoir"
    rings = "class"

    def __init__(self, plan: NetworkPlan, settings: RehearsalSettings, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        self.memory = ExemplarMemory(settings.kept, self.policy, seed.child("memory"), self.rings)

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        self.memory.begin(task)

    def trained(self) -> list[Tensor]:
        return self.network(self.current).all_parameters()

    # Classes of all tasks ----------------------------------------------------------------------

    @property
    def incremental(self) -> bool:
        """Whether the classes of all tasks compete when the task is not given."""
        return True

    def first_class(self, task: str) -> int:
        """The number of the task's first class among all classes seen."""
        names = list(self.known)
        before = names[: names.index(task)] if task in names else names
        return sum(len(self.known[name].classes) for name in before)

    def union(self, task: Task) -> Task:
        """Exemplars and the data of `task` as one training set; `prepared` does its images."""
        past = self.memory.portions()
        labels = [part.train.labels + self.first_class(part.name) for part in (*past, task)]
        images = [part.train.images for part in (*past, task)]
        known = [label for k, v in self.known.items() if k != task.name for label in v.classes]
        train = Examples(torch.cat(images), torch.cat(labels))
        return Task(task.name, (*known, *task.classes), train, task.validation, PIXELS)

    def prepared(self, batch: Batch) -> Tensor:
        """The images of a batch of the union, each prepared as its own task's are."""
        looks = [known.preprocessing for known in self.known.values()]
        if len(set(looks)) == 1:
            return looks[0](batch.images)
        firsts = torch.tensor([self.first_class(task) for task in self.known])
        task = torch.bucketize(batch.labels, firsts, right=True) - 1  # (n,)
        images = torch.empty_like(batch.images)
        for look in set(looks):
            rows = torch.tensor([look == other for other in looks])[task]
            images[rows] = look(batch.images[rows])
        return images

    def features(self, images: Tensor, task: str) -> Tensor:
        """What the heads read of raw images of `task`, at inference: (n, d)."""
        network = self.network(task).learning(False)
        return network.flow(self.known[task].preprocessing(images), task).values

    def class_scores(self, flow: Activations, task: str) -> Tensor:
        """Scores of the task's classes that are comparable with those of other tasks."""
        scores: Tensor = self.network(task).heads[task](flow)
        return scores

    def seen_scores(self, images: Tensor, tasks: Sequence[str]) -> Tensor:
        """Scores of all classes of `tasks` for raw images, (n, classes), at inference.

        The features are computed once for each way to prepare pictures, mostly one.
        """
        flows: dict[Preprocessing, Activations] = {}
        scores = []
        for task in tasks:
            look = self.known[task].preprocessing
            if look not in flows:
                flows[look] = self.network(task).learning(False).flow(look(images), task)
            scores.append(self.class_scores(flows[look], task))
        return torch.cat(scores, 1)

    def probabilities(self, scores: Tensor, tasks: Sequence[str]) -> Tensor:
        """Of all classes of `tasks`, from their scores (n, classes)."""
        return torch.softmax(scores, 1)

    @torch.no_grad()
    def predict(self, images: Tensor, task: str | None) -> Prediction:
        """Without a task, the best of all classes seen names task and class."""
        if task is not None or not self.incremental:
            return super().predict(images, task)
        tasks = tuple(name for name, known in self.known.items() if known.kept is not None)
        if not tasks:
            raise RivalsError("No task is learned yet, so none can be inferred; learn one first.")
        best = self.probabilities(self.seen_scores(images, tasks), tasks).max(1)
        firsts = torch.tensor([self.first_class(name) for name in tasks])
        which = torch.bucketize(best.indices, firsts, right=True) - 1  # (n,)
        return Prediction(tasks, which, best.indices - firsts[which], best.values)

    def keep(self, task: Task) -> None:
        """Where classes of all tasks compete, nothing more is needed to name one."""
        if not self.incremental:
            super().keep(task)
            return
        self.known[task.name] = self.known[task.name].with_kept({})
