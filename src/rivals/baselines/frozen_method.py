"""Methods on frozen features: an ancestor looks, sums are kept, and a classifier follows from them.

    pictures ─► ancestor ─► transform ─► rows (n, d) ─► sums over rows ─► heads of all classes
               (frozen)    (a power, …)                (kept for ever)   (solved, never trained)

One pass over a task adds up what the classifier needs; no picture is kept, and no gradient is
taken. Sums do not depend on the order of pictures or of tasks, so nothing is forgotten. All classes
are scored by one classifier: with the task known, only its own classes are asked.

The ancestor was trained on other pictures, so results say that these methods are pretrained.
Settings of networks and of gradient descent (epochs, lr, augmentation, …) mean nothing here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import safetensors.torch
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, fx, nn

from rivals.ancestors import SHIPPED
from rivals.ancestors.feature_network import feature_network
from rivals.ancestors.timm_backbone import PREFIX, is_backbone
from rivals.baselines.seen_classes import NEVER, best_class
from rivals.errors import RivalsError, unknown
from rivals.io.files import digest
from rivals.learn.method import Method, StepResult
from rivals.learn.state import State, StatePart
from rivals.learn.training_settings import TrainingSettings
from rivals.naming.task_record import Prediction, learned_tasks
from rivals.nn.convolve import channels_last
from rivals.nn.cut import Cutter, follow, linear
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.plain_layers import Power
from rivals.nn.task_state import NamedTensors, TaskColumn
from rivals.seeds import Seed
from rivals.streams.batching import Batching
from rivals.streams.task import Batch, Task

IMAGES = 64  # that the ancestor looks at together


class FrozenSettings(TrainingSettings):
    """Whose features are used, and how."""

    ancestor: str = Field(
        "small",
        description="The trained network whose features are used: tiny, small, or timm:NAME, a "
        "backbone of timm (timm:NAME=FILE takes its weights from a file).",
    )
    side: int = Field(
        0, ge=0, le=256,
        description="Pixels a side that images are resized to; 0: as models with the ancestor do.",
    )  # fmt: skip
    power: float = Field(
        1.0,
        gt=0,
        le=2,
        description="Features are raised to it (Tukey's transform); 0.5 makes them more normal.",
    )

    def check(self) -> None:
        if self.ancestor not in SHIPPED and not is_backbone(self.ancestor):
            raise unknown("ancestor", self.ancestor, (*SHIPPED, f"{PREFIX}NAME"))

    @property
    def batching(self) -> Batching:
        """Every picture once and as it is: more passes, or changed pictures, would add nothing."""
        return Batching(self.batch_size)


class FrozenMethod(Method):
    """Adds up rows of features, class by class; a method says what else, and how to classify."""

    settings: FrozenSettings
    settings_class = FrozenSettings
    keeps_products = False  # Σ row rowᵀ over the classes of all tasks, (d, d)

    def __init__(self, plan: NetworkPlan, settings: Any, seed: Seed) -> None:
        super().__init__(plan, settings, seed)
        plan.dense(seed, "ticket")  # a run has settings of a network; wrong ones are refused here
        frozen = feature_network(settings.ancestor, plan.input_shape, settings.side)
        tensors = {name: t.contiguous() for name, t in frozen.network.state_dict().items()}
        self.fingerprint = digest(safetensors.torch.save(tensors))
        self.network, self.name = frozen.network.to(self.device), frozen.name
        self.preparation = frozen.preparation
        with torch.no_grad():
            seen = self.network(torch.zeros(1, *plan.input_shape, device=self.device))
        self.transform = nn.Sequential(*self.transforms(seen.shape[1])).to(self.device)
        self.width = int(self.transform(seen).shape[1])  # of rows
        self.sums: TaskColumn[NamedTensors] = self.tasks.column("sums")
        size = self.width if self.keeps_products else 0
        self.products = torch.zeros(size, size, device=self.device)
        self._heads: dict[str, nn.Sequential] = {}  # until something is learned

    # What a method overrides -------------------------------------------------------------------

    def transforms(self, width: int) -> list[nn.Module]:
        """Plain layers between the ancestor's `width` features and the rows that are added up."""
        return [Power(self.settings.power)] if self.settings.power != 1 else []

    def empty_sums(self, classes: int) -> dict[str, Tensor]:
        """The sums of a task before its first picture."""
        return {
            "count": torch.zeros(classes, dtype=torch.long),
            "rows": torch.zeros(classes, self.width),
        }

    def add(self, rows: Tensor, labels: Tensor, task: str) -> None:
        """Add rows (n, d) to the sums of their classes."""
        own = self.sums[task].to_dict()
        own["count"].index_add_(0, labels, torch.ones_like(labels))
        own["rows"].index_add_(0, labels, rows)
        if self.keeps_products:
            self.products.addmm_(rows.T, rows)

    @abstractmethod
    def heads(self, task: str) -> dict[str, nn.Sequential]:
        """Plain layers that score the classes of `task` from rows (n, d).

        Those of other tasks, too, where one solution gives them all.
        """

    def forget_heads(self, task: str) -> None:
        """Pictures of `task` came: here all heads are out of date."""
        self._heads = {}

    # Learning ----------------------------------------------------------------------------------

    @property
    def one_classifier(self) -> bool:
        return True

    @property
    def pretrained(self) -> dict[str, str]:
        return {"name": self.name, "sha256": self.fingerprint}

    def centred(self, task: Task) -> Task:
        """The task with pictures as the ancestor knows them, whatever the stream's own way is."""
        known = replace(self.preparation, scale=task.preprocessing.scale)
        return replace(task, preprocessing=known)

    def start(self, task: Task) -> None:
        super().start(self.centred(task))

    def training_set(self, task: Task) -> Sequence[Task]:
        return [self.centred(task)]

    def planned_epochs(self) -> int:
        return 1

    def begin_task(self, task: Task) -> None:
        self.sums[task.name] = NamedTensors(self.empty_sums(len(task.classes))).to(self.device)

    def step(self, batch: Batch) -> StepResult:
        scores = self.observe(batch)
        loss = F.cross_entropy(scores, batch.labels)
        correct = int((scores.argmax(1) == batch.labels).sum())
        return StepResult(loss.item(), correct, len(batch.labels))

    @torch.no_grad()
    def observe(self, batch: Batch) -> Tensor:
        """Add a batch; its scores by the nearest class mean so far, to show progress."""
        self.forget_heads(batch.task)
        features = self.network(channels_last(batch.images))
        self.remember(features, batch.labels)
        rows = self.transform(features)
        self.add(rows, batch.labels, batch.task)
        count, means = self.means(batch.task)
        return F.linear(rows, means, unless_empty(count, -0.5 * means.square().sum(1)))

    def remember(self, features: Tensor, labels: Tensor) -> None:
        """Keep features until the end of the task; most methods need none."""

    def update(self) -> None:
        """Nothing follows gradients: `step` adds up instead."""

    def means(self, task: str) -> tuple[Tensor, Tensor]:
        """Of each class of a task: the number of pictures (c,) and the mean row (c, d)."""
        own = self.sums[task].to_dict()
        return own["count"], own["rows"] / own["count"].clamp(min=1).unsqueeze(1)

    def exact_means(self, tasks: Iterable[str]) -> tuple[Tensor, Tensor]:
        """The same for the classes of several tasks, one after the other, to solve with."""
        count, means = (torch.cat(part) for part in zip(*map(self.means, tasks), strict=True))
        means = exact(means)
        return count.to(means.device), means

    def end_task(self, task: Task) -> None:
        with self.charged():
            self.head(task.name)

    def working_tensors(self) -> list[Tensor]:
        own = [t for task in self.sums for t in self.sums[task].to_dict().values()]
        return [*own, self.products]

    # Inference ---------------------------------------------------------------------------------

    @torch.no_grad()
    def head(self, task: str) -> nn.Sequential:
        """The layers that score the classes of `task`, given all that was added up until now."""
        if task not in self._heads:
            self._heads |= {name: each.to(self.device) for name, each in self.heads(task).items()}
        return self._heads[task]

    def split(self, weight: Tensor, bias: Tensor) -> dict[str, nn.Sequential]:
        """A linear head for each task, from those of all classes: (classes, d) and (classes,)."""
        sizes = [len(self.sums[task].to_dict()["count"]) for task in self.sums]
        parts = zip(weight.split(sizes), bias.split(sizes), strict=True)  # type: ignore[no-untyped-call]
        return {
            task: nn.Sequential(linear(rows.float(), shift.float()))
            for task, (rows, shift) in zip(self.sums, parts, strict=True)
        }

    @torch.no_grad()
    def rows(self, images: Tensor) -> Tensor:
        """What heads read of prepared images: (n, d)."""
        parts = channels_last(images).split(IMAGES)  # type: ignore[no-untyped-call]
        return torch.cat([self.transform(self.network(part)) for part in parts])

    def logits(self, images: Tensor, task: str) -> Tensor:
        scores: Tensor = self.head(task)(self.rows(images))
        return scores

    @torch.no_grad()
    def predict(self, images: Tensor, task: str | None) -> Prediction:
        """Without a task, the classes of all tasks compete."""
        if task is not None:
            return super().predict(images, task)
        images, tasks = images.to(self.device), learned_tasks(self.known)
        ways = {name: self.known[name].preprocessing for name in tasks}
        rows = {way: self.rows(way(images)) for way in set(ways.values())}  # usually one
        scores = torch.cat([self.head(name)(rows[ways[name]]) for name in tasks], 1)
        return best_class(self.known, tasks, torch.softmax(scores, 1))

    def ticket(self, task: str) -> fx.GraphModule:
        """All of it for one task: the ancestor, the transform and the task's head."""
        cutter = Cutter()
        values = follow(self.network, cutter.input())
        for layer in (*self.transform, *self.head(task)):
            values = follow(layer, values)
        return cutter.finish(values).eval()

    def full_weights(self) -> int:
        return sum(p.numel() for p in self.ticket(next(iter(self.known))).parameters())

    # Saving ------------------------------------------------------------------------------------

    def footprint(self) -> dict[str, int]:
        """What is computed from the seed, such as a random projection, is not stored."""
        return {
            "ancestor": sum(tensor.nbytes for tensor in self.network.state_dict().values()),
            "sums": sum(tensor.nbytes for tensor in self.working_tensors()),
            "tasks": self.kept_bytes(),
        }

    def state(self) -> State:
        common = self.common_part()
        common.facts["ancestor"] = self.pretrained
        parts: State = {"common": common, "products": StatePart({"products": self.products})}
        for task in self.sums:
            learned = self.known[task].kept is not None
            parts[f"sums/{task}"] = StatePart(self.sums[task].to_dict(), fixed=learned)
        return parts

    def load(self, state: State) -> None:
        found = state["common"].facts["ancestor"]
        if found != self.pretrained:
            raise RivalsError(
                f"The state was learned on the ancestor '{found['name']}' with the checksum "
                f"{found['sha256'][:8]}…, but here is '{self.name}' with "
                f"{self.fingerprint[:8]}…; use the version of rivals that wrote it, or start anew."
            )
        self.load_common(state["common"])
        self._heads = {}
        self.products = self.copied(state["products"])["products"]
        for task in self.known:
            self.sums[task] = NamedTensors(self.copied(state[f"sums/{task}"]))

    def copied(self, part: StatePart) -> dict[str, Tensor]:
        """Copies, since sums grow in place."""
        return {k: tensor.to(self.device, copy=True) for k, tensor in part.tensors.items()}


def exact(values: Tensor) -> Tensor:
    """In float64, on a device that has it."""
    return (values.cpu() if values.device.type == "mps" else values).double()


def unless_empty(count: Tensor, scores: Tensor) -> Tensor:
    """The scores or biases (c,) of classes; one without pictures is never the answer."""
    return torch.where(count > 0, scores, NEVER)
