"""Asking a model: the class of a picture, its task, and how sure; or that it is none of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rivals.errors import RivalsError
from rivals.io.pictures import Picture, to_pixels
from rivals.model.folder import Model
from rivals.naming import familiarity as calibration
from rivals.tickets.parallel import ParallelTickets, TicketOutput


@dataclass(frozen=True)
class Answer:
    """What a model says of one picture."""

    task: str
    label: str  # the name of the class; what it would be, where it is rejected
    confidence: float  # its probability within the task, 0 to 1
    rejected: bool = False  # it looks like none of what was learned


class Predictor:
    """A model that is open to be asked. It does not see what is learned later."""

    def __init__(self, path: str | Path) -> None:
        self.model = Model.open(path)
        if not self.model.tasks:
            raise RivalsError(f"The model {path} knows no task yet; teach it with `rivals learn`.")
        self.shape = self.model.description.input_shape
        method = self.model.method
        self.tasks = [task.name for task in self.model.tasks]
        self.classes = [task.classes for task in self.model.tasks]
        self.kept = [method.known[name].kept or {} for name in self.tasks]
        self.familiar = [self.model.familiar[name] for name in self.tasks]
        self.tickets = [method.ticket(name) for name in self.tasks]
        self.prepare = [method.known[name].preprocessing for name in self.tasks]
        self.together: dict[str | None, ParallelTickets] = {}

    def predict(
        self,
        pictures: Sequence[Picture],
        task: str | None = None,
        reject: float | None = None,
    ) -> list[Answer]:
        """An answer for each picture; without `task`, the one that it looks most like is named."""
        if not pictures:
            return []
        pixels = [to_pixels(each, self.shape) for each in pictures]
        return self.decide(np.stack(pixels), task, reject)

    def check(self, task: str | None, reject: float | None) -> None:
        """Refuse what cannot be asked."""
        if reject is not None:
            calibration.check_share(reject)
        if task is not None:
            self.model.task(task)

    def read(self, path: str | Path) -> NDArray[np.uint8]:
        """A picture file as this model wants it."""
        return to_pixels(path, self.shape)

    @torch.no_grad()
    def decide(
        self, images: NDArray[np.uint8], task: str | None = None, reject: float | None = None
    ) -> list[Answer]:
        """An answer for each of images (n, channels, height, width), as `read` gives them."""
        self.check(task, reject)
        members = list(range(len(self.tasks)))
        if task is not None:
            members = [self.tasks.index(self.model.task(task).name)]
        raw = torch.from_numpy(np.ascontiguousarray(images))
        readings = self.tickets_of(task, members)(raw)
        which = self.named(raw, readings, members).tolist()
        best = [torch.softmax(reading.scores, 1).max(1) for reading in readings]
        labels, sure = ([getattr(b, k).tolist() for b in best] for k in ("indices", "values"))
        strange = [[False] * len(raw)] * len(members)
        if reject is not None:
            known = [self.familiar[m] for m in members]
            strange = [
                (each(reading) < each.least(reject)).tolist()
                for each, reading in zip(known, readings, strict=True)
            ]
        return [
            Answer(
                self.tasks[members[w]], self.classes[members[w]][labels[w][n]], sure[w][n],
                strange[w][n],
            )
            for n, w in enumerate(which)
        ]  # fmt: skip

    def tickets_of(self, task: str | None, members: list[int]) -> ParallelTickets:
        if task not in self.together:
            self.together[task] = ParallelTickets(
                [self.tickets[m] for m in members], [self.prepare[m] for m in members]
            )
        return self.together[task]

    def named(self, raw: Tensor, readings: Sequence[TicketOutput], members: list[int]) -> Tensor:
        """For each picture the number of the task that recognises it best: (n,)."""
        if len(members) == 1:
            return torch.zeros(len(raw), dtype=torch.int64)
        rule = calibration.rule()
        view = rule.view(raw)
        pairs = zip(readings, members, strict=True)
        scores = [rule.score(view, reading, self.kept[m]) for reading, m in pairs]
        return torch.stack(scores).argmax(0)
