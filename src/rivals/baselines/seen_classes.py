"""The classes of all tasks seen so far as one classification problem.

Class-incremental methods answer without being told the task: the classes of all tasks compete.
Classes are numbered task after task. Heads of different tasks are comparable only if they read the
same features, so these methods share one norm per layer between all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rivals.baselines.memory.exemplar_memory import ExemplarMemory
from rivals.naming.task_record import Prediction, TaskRecord, learned_tasks
from rivals.nn.activations import Activations
from rivals.nn.dense_network import DenseNetwork
from rivals.streams.task import Batch, Examples, Preprocessing, Task

NEVER = -1e4  # the score of a class without images
PIXELS = Preprocessing(scale=1.0, mean=(0.0,), std=(1.0,))  # leaves pixels as they are

ClassScores = Callable[[Activations, str], Tensor]  # features, task → (n, classes of the task)
Probabilities = Callable[[Tensor, Sequence[str]], Tensor]  # scores of all classes, their tasks


class SeenClasses:
    """Training sets, scores and predictions over all classes that a method has seen."""

    def __init__(
        self, known: Mapping[str, TaskRecord], network: Callable[[str], DenseNetwork], *,
        class_scores: ClassScores | None = None, probabilities: Probabilities | None = None,
    ) -> None:  # fmt: skip
        """`class_scores` replaces the heads at inference, `probabilities` the softmax."""
        self.known, self.network = known, network
        self.class_scores = class_scores or self._head_scores
        self.probabilities = probabilities or self._softmax

    # Numbering -----------------------------------------------------------------------------------

    def first(self, task: str) -> int:
        """The number of the task's first class; of a new task, the number of classes so far."""
        names = list(self.known)
        before = names[: names.index(task)] if task in names else names
        return sum(len(self.known[name].classes) for name in before)

    def labels(self, batch: Batch) -> Tensor:
        """The labels of a batch of one task, counted over all classes."""
        return batch.labels + self.first(batch.task)

    def own_columns(self, scores: Tensor, task: str) -> Tensor:
        """The columns of `scores` (n, classes seen) that belong to `task`."""
        first = self.first(task)
        return scores[:, first : first + len(self.known[task].classes)]

    # Training ------------------------------------------------------------------------------------

    def union(self, task: Task, memory: ExemplarMemory) -> Task:
        """Exemplars and the data of `task` as one training set, labels counted over all classes.

        Images stay raw, because tasks may differ in their preprocessing; see `preprocess`.
        """
        past = memory.portions()
        labels = [part.train.labels + self.first(part.name) for part in (*past, task)]
        images = [part.train.images for part in (*past, task)]
        known = [label for k, v in self.known.items() if k != task.name for label in v.classes]
        train = Examples(torch.cat(images), torch.cat(labels))
        return Task(task.name, (*known, *task.classes), train, task.validation, PIXELS)

    def preprocess(self, batch: Batch) -> Tensor:
        """The images of a batch of the union, each preprocessed as its own task asks."""
        found = [record.preprocessing for record in self.known.values()]
        if len(set(found)) == 1:
            return found[0](batch.images)
        device = batch.images.device
        firsts = torch.tensor([self.first(task) for task in self.known], device=device)
        task = torch.bucketize(batch.labels, firsts, right=True) - 1  # (n,)
        images = torch.empty_like(batch.images)
        for each in set(found):
            rows = torch.tensor([each == other for other in found], device=device)[task]
            images[rows] = each(batch.images[rows])
        return images

    def train_scores(self, images: Tensor) -> Tensor:
        """Scores of all classes for preprocessed images, with gradients: (n, classes seen)."""
        tasks = list(self.known)
        scores: Tensor = self.network(tasks[0]).learning(True)(images, tasks[0], heads=tasks)
        return scores

    # Inference -----------------------------------------------------------------------------------

    def features(self, images: Tensor, task: str) -> Tensor:
        """What the heads read of raw images of `task`, at inference: (n, d)."""
        network = self.network(task).learning(False)
        images = self.known[task].preprocessing(images.to(network.device))
        return network.flow(images, task).values

    def scores(self, images: Tensor, tasks: Sequence[str]) -> Tensor:
        """Scores of all classes of `tasks` for raw images, at inference: (n, classes).

        Features are computed once for each different preprocessing; usually there is one.
        """
        flows: dict[Preprocessing, Activations] = {}
        scores = []
        for task in tasks:
            prepare = self.known[task].preprocessing
            if prepare not in flows:
                flows[prepare] = self.network(task).learning(False).flow(prepare(images), task)
            scores.append(self.class_scores(flows[prepare], task))
        return torch.cat(scores, 1)

    @torch.no_grad()
    def predict(self, images: Tensor) -> Prediction:
        """The most probable of all classes, which also gives the task."""
        tasks = learned_tasks(self.known)
        return best_class(self.known, tasks, self.probabilities(self.scores(images, tasks), tasks))

    def _head_scores(self, flow: Activations, task: str) -> Tensor:
        scores: Tensor = self.network(task).heads[task](flow)
        return scores

    def _softmax(self, scores: Tensor, tasks: Sequence[str]) -> Tensor:
        return torch.softmax(scores, 1)


def best_class(
    known: Mapping[str, TaskRecord], tasks: tuple[str, ...], probabilities: Tensor
) -> Prediction:
    """The most probable of all classes of `tasks`, given (n, classes); it gives the task, too."""
    best = probabilities.max(1)
    sizes = torch.tensor([0, *(len(known[task].classes) for task in tasks[:-1])])
    firsts = sizes.cumsum(0).to(probabilities.device)
    which = torch.bucketize(best.indices, firsts, right=True) - 1  # (n,)
    return Prediction(tasks, which, best.indices - firsts[which], best.values)
