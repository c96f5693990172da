"""Why a model answers as it does: the part of a picture that decided, and the nearest classes.

    picture ─► answer ─► the same with each patch covered ─► log-odds that are lost: heat
                  └────► features of every task ─► distances from the means of its classes

It asks the one predictor and nothing else, so it holds for every kind of task: trained units, a
head on an ancestor, on edges or on pixels. What is explained is the choice among the classes of one
task, that of `Answer.confidence`; which task was named is another question.

The part that is named grows around the hottest place until the answer changes without it; where it
does not, the part has half of the largest heat.
"""

from __future__ import annotations

import io
import unicodedata
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from rivals.answer import Answer, Choice
from rivals.errors import RivalsError, unknown
from rivals.io.files import write_bytes
from rivals.model.folder import ModelFolder
from rivals.model.heat_picture import draw_heat
from rivals.model.manifest import TaskFacts
from rivals.model.occlusion import MOST_OF_IT, Grid, covered, hottest_part, name_of_place

NEAREST = 10  # classes that are listed
NOTABLE = 0.05  # of probability: a part that costs less when it is covered does not count
PARTS = (0.75, 0.5, 0.25)  # of the largest heat: what belongs to the part that counts


@dataclass(frozen=True)
class NearbyClass:
    """How near a picture is to what was learned of a class, in the features that its task reads."""

    label: str
    task: str
    distance: float  # from the mean of the class; 1 is usual for held-out pictures of the task
    farther: float  # share of these that lie farther from the nearest mean, 0 to 1


@dataclass(frozen=True, eq=False)
class Explanation:
    """What in a picture decided for a class, and which classes are near.

    `heat` says for every pixel how many log-odds the class loses when its surroundings are covered;
    where it is negative, they speak against the class.

    >>> import numpy as np, rivals
    >>> images = np.random.default_rng(0).integers(0, 60, (40, 32, 32, 3), dtype=np.uint8)
    >>> images[20:, 22:30, 22:30, 0] = 255  # the class `red` has a red square on the lower right
    >>> model = rivals.Model("squares")
    >>> labels = ["plain"] * 20 + ["red"] * 20
    >>> learned = model.learn((images, labels), "squares", ancestor="tiny", size=32)
    >>> found = model.explain(images[-1])
    >>> found.label, found.part
    ('red', 'lower right')
    >>> found.heat.shape, bool(found.heat[28, 28] > found.heat[4, 4])
    ((32, 32), True)
    >>> [each.label for each in found.nearest]
    ['red', 'plain']
    >>> found.save("heat.png")
    """

    answer: Answer
    label: str  # the class that is explained: that of the answer, or the one that was asked for
    task: str
    probability: float  # of this class within its task, 0 to 1
    part: str  # what counts most, the least of it that changes the answer; "" where nothing does
    without: float  # the probability when this part is covered,
    lost: float  # the log-odds that are lost then,
    instead: str  # and the most probable class of the task
    nearest: tuple[NearbyClass, ...]  # of all tasks, the nearest first
    cells: NDArray[np.float32] = field(repr=False)  # heat of (rows, columns) dividing the picture
    heat: NDArray[np.float32] = field(repr=False)  # the same for every pixel, (height, width)
    picture: Image.Image = field(repr=False)  # as it was given, made smaller if it was large

    @property
    def decided(self) -> bool:
        """Whether the answer is another one without this part."""
        return self.answer.choices[0] == self._chosen and self.instead != self.label

    @property
    def verdict(self) -> str:
        """How much the part counts: `nothing`, `little`, `most`, or `decided`."""
        if not self.part:
            return "nothing"
        if self.without > max(self.probability - NOTABLE, self.probability / 2):
            return "little"
        return "decided" if self.decided else "most"

    @property
    def _chosen(self) -> Choice | None:
        found = (each for each in self.answer.choices if each.label == self.label)
        return next((each for each in found if each.task == self.task), None)

    def __str__(self) -> str:
        """One plain sentence."""
        said = self._sentence()
        if self.task == self.answer.task:
            return said
        return f"Among the classes of the task {self.task}: {said[0].lower()}{said[1:]}"

    def _sentence(self) -> str:
        verdict = self.verdict
        label, now, then = f"'{self.label}'", percent(self.probability), percent(self.without)
        if verdict == "nothing":
            return f"No part of the picture speaks for {label}."
        part = self.part if self.part == MOST_OF_IT else f"the {self.part}"
        if verdict == "little":
            goes = f"stays at {now}" if now == then else f"goes from {now} to {then}"
            return f"No single part decided: without {part}, which counts most, {label} {goes}."
        falls = f"without it {label} falls from {now} to {then}"
        part = part[0].upper() + part[1:]
        if verdict == "decided":
            return f"{part} decided: {falls}, and the answer is '{self.instead}'."
        return f"{part} counts most: {falls}."

    def to_dict(self) -> dict[str, Any]:
        answer = self.answer
        return {
            "answer": {
                "label": answer.label, "task": answer.task, "confidence": answer.confidence,
            },
            "label": self.label,
            "task": self.task,
            "probability": self.probability,
            "part": self.part or None,
            "without": self.without,
            "lost": self.lost,
            "instead": self.instead,
            "decided": self.decided,
            "verdict": self.verdict,
            "sentence": str(self),
            "nearest": [vars(each) for each in self.nearest],
            "heat": [[round(value, 4) for value in row] for row in self.cells.tolist()],
        }  # fmt: skip

    def overlay(self) -> Image.Image:
        """The picture with the heat map over it: orange speaks for the class, blue against it."""
        return draw_heat(self.picture, self.cells)

    def png(self) -> bytes:
        """That as the bytes of a PNG file."""
        out = io.BytesIO()
        self.overlay().save(out, "PNG")
        return out.getvalue()

    def save(self, path: str | PathLike[str]) -> None:
        """Write that to a file, whole or not at all."""
        write_bytes(Path(path), self.png())


def explain(
    model: ModelFolder, pixels: NDArray[np.uint8], shown: Image.Image, answer: Answer,
    task: str | None = None, label: str | None = None,
) -> Explanation:  # fmt: skip
    """What decided for the answer, or for the class `label` of `task`, or of any task.

    `pixels` are what the model sees, (channels, height, width); `shown` is what people see of it.
    """
    facts, place = _class_of(model, answer, task, label)
    predictor, device = model.predictor(), model.method.device
    image = torch.from_numpy(pixels.copy())

    def scores(images: Tensor) -> Tensor:
        """Of the classes of the task: (n, classes)."""
        return predictor.predict(images.to(device), facts.name).outputs[0].scores.cpu()

    grid = Grid.for_budget(image.shape[1], image.shape[2], facts.macs)
    first = scores(image[None])
    now = _log_odds(first, place)
    cells = grid.heat(now - _log_odds(scores(covered(image, grid.patches())), place))
    parts = torch.stack([hottest_part(cells, share) for share in PARTS])
    then = scores(covered(image, grid.pixels(parts)))
    changes = (then.argmax(1) != first.argmax(1)).tolist()
    chosen = changes.index(True) if any(changes) else PARTS.index(0.5)
    part, then = parts[chosen], then[[chosen]]
    after = _log_odds(then, place)
    return Explanation(
        answer,
        facts.classes[place],
        facts.name,
        float(torch.sigmoid(now)),
        name_of_place(part) if bool(part.any()) else "",
        float(torch.sigmoid(after)),
        float(now - after),
        facts.classes[int(then.argmax())],
        nearest_classes(model, image),
        cells.numpy(),
        grid.pixels(cells).numpy(),
        shown,
    )


def _log_odds(scores: Tensor, place: int) -> Tensor:
    """log p / (1 − p) of the class at `place`, from scores (n, classes) of two or more: (n,)."""
    others = torch.cat([scores[:, :place], scores[:, place + 1 :]], 1)
    return scores[:, place] - others.logsumexp(1)


def _class_of(
    model: ModelFolder, answer: Answer, task: str | None, label: str | None
) -> tuple[TaskFacts, int]:
    """The task that is looked at, and the place of the class in it."""
    named = model.task(answer.task)
    wanted = answer.label if label is None else unicodedata.normalize("NFC", label)
    homes = [each for each in model.tasks if wanted in each.classes]
    if named in homes:
        return named, named.classes.index(wanted)
    if task is not None:
        raise unknown(f"class of the task {task}", wanted, named.classes)
    if not homes:
        raise unknown("class", wanted, {each for facts in model.tasks for each in facts.classes})
    if len(homes) > 1:
        raise RivalsError(
            f"The class '{wanted}' is in the tasks {', '.join(each.name for each in homes)}; "
            "choose one with --task."
        )
    return homes[0], homes[0].classes.index(wanted)


def nearest_classes(model: ModelFolder, image: Tensor) -> tuple[NearbyClass, ...]:
    """The classes whose means are nearest, each in the features that its task reads."""
    predictor, found = model.predictor(), list[NearbyClass]()
    with torch.no_grad():
        outputs = predictor.group()(image[None].to(model.method.device))
        for facts, output in zip(model.tasks, outputs, strict=False):
            near, farther = model.familiarity[facts.name].closeness(output.features)
            rows = zip(facts.classes, near[0].tolist(), farther[0].tolist(), strict=True)
            found += [NearbyClass(label, facts.name, *numbers) for label, *numbers in rows]
    return tuple(sorted(found, key=lambda each: each.distance)[:NEAREST])


def percent(probability: float) -> str:
    """A probability in words: whole percents, but near 0 and 1 with a decimal."""
    value = 100 * probability
    return f"{value:.0f} %" if 1 <= value <= 99 else f"{value:.1f} %"
