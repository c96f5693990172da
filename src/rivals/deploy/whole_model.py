"""A whole model as one module: every ticket, and the rule that names the task of an image.

uint8 images ─► all tickets together ─► rule ─► task, class in it, confidence: (n,) each

Where tickets share the features of an ancestor, the probabilities of the classes of all tasks come
after these, and how familiar a picture looks: the share of known pictures that look less so.
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
from rivals.naming.predictor import shows_nothing
from rivals.naming.rule import TaskNamer
from rivals.tickets.parallel import ParallelTickets, TicketOutput

OUTPUTS = ("task", "label", "confidence")
RANKED = (*OUTPUTS, "probabilities")
FAMILIAR = (*RANKED, "familiar")
SOME = 200  # images of a task that are compared, at most
NEAR_LEVEL = 0.005  # shares of known pictures that differ by less are equal
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


class KnowsStrangers(nn.Module):
    """The same with probabilities among the classes of all tasks, and how familiar pictures look.

    Pictures of one colour are familiar to nothing.
    """

    def __init__(self, names: NamesTask) -> None:
        super().__init__()
        self.names = names

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        outputs, namer = self.names.outputs(images), self.names.namer
        task, label, confidence, joint = namer.among_all(images, outputs)
        assert joint is not None
        familiar = namer.familiarity(outputs, task)
        familiar = familiar.masked_fill(shows_nothing(images), -1.0)
        return task, label, confidence, joint, familiar


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
    shares_features: bool = False  # the tickets have features in common, an ancestor's

    def written(self, ranked: bool) -> tuple[nn.Module, Sequence[str], dict[str, Any]]:
        """What is written, the names of its outputs, and what the card says of them.

        Args:
            ranked: Whether all classes of the task that is named are wanted, at least.
        """
        if self.shares_features:
            facts = {"probabilities": True, "familiar": True}
            return KnowsStrangers(self.module), FAMILIAR, {**self.card(), **facts}
        if ranked:
            module = RanksClasses(self.module, len(self.tasks))
            return module, RANKED, {**self.card(), "probabilities": True}
        return self.module, OUTPUTS, self.card()

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
    shared = predictor.features is not None
    return Whole(method, tasks, module, input_shape, chosen, sound, shared)


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


@torch.no_grad()
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
    others = artefact.run(images.numpy())[3:]
    if artefact.card.ranks:
        known = probabilities(wanted.outputs) if wanted.joint is None else wanted.joint
        difference = max(difference, float(np.abs(known.numpy() - others[0]).max()))
    if artefact.card.familiar:  # near a level rounding decides
        share = source.written(True)[0](images)[4].numpy()
        same &= torch.from_numpy((np.abs(share - others[1]) < NEAR_LEVEL) | (others[1] < 0))
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
