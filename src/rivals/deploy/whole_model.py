"""A whole model as one module: every ticket, and the rule that names the task of an image.

uint8 images ─► all tickets together ─► rule ─► task, class in it, confidence: (n,) each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rivals.deploy.parity import Parity
from rivals.deploy.test_pictures import ComparisonPictures
from rivals.edge.artefact import Artefact
from rivals.edge.card import VERSION
from rivals.errors import RivalsError
from rivals.io.checksum import BLANK
from rivals.io.spectrogram import SoundSettings
from rivals.learn.method import Method
from rivals.naming.rule import TaskNamer
from rivals.tickets.parallel import ParallelTickets, TicketOutput

OUTPUTS = ("task", "label", "confidence")
RANKED = (*OUTPUTS, "probabilities")
SOME = 200  # images of a task that are compared, at most
ROUNDING = 1e-5  # two classes whose scores differ by less are equal, and either may be named


class NamesTask(nn.Module):
    """What `method.predict(images, None)` computes, without its splitting of images."""

    def __init__(self, together: ParallelTickets, namer: TaskNamer) -> None:
        super().__init__()
        self.together, self.namer = together, namer

    def outputs(self, images: Tensor) -> list[TicketOutput]:
        found = self.together.outputs(images)
        return [found[number] for number in sorted(found)]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.namer(images, self.outputs(images))

    @torch.no_grad()
    def belief(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """What is compared of all classes of all tasks, and the confidence of each."""
        return self.namer.belief(images, self.outputs(images))


class RanksClasses(nn.Module):
    """The same, and the probabilities of all classes, each within its own task: (n, classes)."""

    def __init__(self, names: NamesTask, tasks: int) -> None:
        super().__init__()
        self.names, self.tasks = names, tasks

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        outputs = self.names.outputs(images)
        task, label, confidence = self.names.namer(images, outputs)
        return task, label, confidence, probabilities(outputs[: self.tasks])


def probabilities(outputs: Sequence[TicketOutput]) -> Tensor:
    """Of the classes of each ticket among themselves, ticket after ticket: (n, classes)."""
    return torch.cat([torch.softmax(each.scores, 1) for each in outputs], 1)


@dataclass(frozen=True)
class Whole:
    """The model of a run, ready to be written."""

    method: Method
    tasks: tuple[str, ...]
    module: NamesTask
    input_shape: tuple[int, int, int]
    pictures: dict[str, ComparisonPictures]  # of each task
    sound: SoundSettings | None = None  # how sounds are read, where the tasks have some

    def card(self) -> dict[str, Any]:
        known = [self.method.known[task] for task in self.tasks]
        scales = {each.preprocessing.scale for each in known}
        if len(scales) > 1:
            raise RivalsError(
                "The tasks of this model learned from images with different values of white "
                f"({', '.join(f'{scale:g}' for scale in sorted(scales))}), which one artefact "
                "cannot read; export them one by one with --task."
            )
        return {
            "rivals": VERSION,
            "tasks": [
                {"task": task, "classes": list(each.classes)}
                for task, each in zip(self.tasks, known, strict=True)
            ],
            "rule": self.method.settings.naming.rule,
            "input_shape": list(self.input_shape),
            "preprocessing": {"scale": scales.pop(), "mean": [], "std": []},
            "raw_input": True,
            "accuracy": None,
            **({"sound": self.sound.to_dict()} if self.sound else {}),
            "sha256": BLANK,
        }


def whole(
    method: Method, input_shape: tuple[int, int, int], pictures: dict[str, ComparisonPictures],
    sound: SoundSettings | None = None,
) -> Whole:  # fmt: skip
    """All tasks of `method` that were learned to their end."""
    predictor = method.predictor()
    tasks = predictor.tasks
    module = NamesTask(predictor.group(), predictor.namer)
    chosen = {task: pictures[task] for task in tasks}
    return Whole(method, tasks, module, input_shape, chosen, sound)


def compare_whole(source: Whole, artefact: Artefact) -> Parity:
    """The same task and class as `predict` says, on images of every task."""
    parts = [
        compare_task(source, artefact, number, pictures)
        for number, pictures in enumerate(source.pictures.values())
    ]
    total, held = sum(part.images for part in parts), sum(part.held for part in parts)

    def mean(values: list[float], sizes: list[int]) -> float:
        return float(np.average(values, weights=sizes))

    sizes, few = [part.images for part in parts], [part.held for part in parts]
    return Parity(
        total,
        parts[0].source,
        max(part.difference for part in parts),
        mean([part.agreement for part in parts], sizes),
        held,
        mean([part.before or 0.0 for part in parts], few) if held else None,
        mean([part.after or 0.0 for part in parts], few) if held else None,
    )


def compare_task(
    source: Whole, artefact: Artefact, number: int, pictures: ComparisonPictures
) -> Parity:
    """The same for images of the task `number`."""
    few = replace(pictures, held=pictures.held[:SOME])
    images = few.compared()[:SOME]
    wanted = source.method.predict(images, None)
    task, label, confidence = artefact.decide(images.numpy())
    sizes = [len(source.method.known[name].classes) for name in source.tasks]
    firsts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    chosen = (firsts[torch.from_numpy(task)] + torch.from_numpy(label))[:, None]  # (n, 1)
    values, confidences = source.module.belief(images)  # (n, classes)
    best = values.max(1).values
    same = best - values.gather(1, chosen)[:, 0] <= ROUNDING * (1 + best.abs())
    difference = float(np.abs(confidences.gather(1, chosen)[:, 0].numpy() - confidence).max())
    if artefact.card.ranks:
        ranked = artefact.run(images.numpy())[3] - probabilities(wanted.outputs).numpy()
        difference = max(difference, float(np.abs(ranked).max()))
    parity = Parity(len(images), few.source, difference, float(same.float().mean()))
    if few.labels is None:
        return parity
    own = few.labels[: len(images)].numpy()
    held = len(own)
    before = (wanted.task.numpy()[:held] == number) & (wanted.label.numpy()[:held] == own)
    after = (task[:held] == number) & (label[:held] == own)
    return replace(
        parity, held=held, before=100 * float(before.mean()), after=100 * float(after.mean())
    )
