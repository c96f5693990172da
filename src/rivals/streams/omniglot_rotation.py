"""Omniglot Rotation: 100 tasks of 12 characters, 20 drawings in 4 rotations = 80 images a class.

A rotated drawing keeps its label. Splits of a class:
- `drawing` (default): 15 drawings to learn and 5 to test, all rotations of one on one side;
- `wsn`: the 80 images shuffled, 60 and 20: the test holds rotations of drawings that were learned;
- `nine_to_one`: the paper's 9:1, 18 drawings and 2.
Validation follows the same unit: drawings, or single images for `wsn`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from rivals.seeds import Seed
from rivals.streams.data.loading import load
from rivals.streams.splits import (
    ClassOrder,
    Parts,
    Pool,
    SplitSettings,
    item_of_group,
    ordered,
    restrict,
    unseen,
)
from rivals.streams.stream import Benchmark, Stream, StreamItem, stratified, streams
from rivals.streams.task import Preprocessing

PREPROCESSING = Preprocessing(scale=255.0, mean=(0.0,), std=(1.0,))
CHARACTERS, WIDTH, TURNS = 1_200, 12, 4
TEST_SHARE = {"drawing": 0.25, "wsn": 0.25, "nine_to_one": 0.1}


class OmniglotSettings(SplitSettings):
    """How Omniglot becomes a stream."""

    split: str = Field("drawing", description="drawing, wsn or nine_to_one")
    class_order: ClassOrder = Field(
        "natural", description="natural, or shuffled by the seed, of the first 1,200 characters"
    )

    SPLITS: ClassVar[tuple[str, ...]] = tuple(TEST_SHARE)


class OmniglotRotation(Stream):
    """An image is named by 4 · drawing + quarter turns, a drawing by its place in the data."""

    name = "omniglot-rotation"
    input_shape = (1, 32, 32)

    def __init__(self, settings: OmniglotSettings, seed: Seed) -> None:
        data = load("omniglot")
        self.settings, self.seed, self.classes = settings, seed, data.classes
        self.fingerprint = data.fingerprint
        self.subset = settings.describe_subset(data.subset, CHARACTERS // WIDTH)
        self.tasks = settings.length(CHARACTERS // WIDTH)
        self.groups = ordered(CHARACTERS, settings.class_order, seed).view(-1, WIDTH)
        self.pool = Pool(data)
        self.labels = self.pool.labels.repeat_interleave(TURNS)  # of images

    def parts(self, index: int) -> Parts:
        """The images of task `index` by name."""
        drawings = torch.nonzero(torch.isin(self.pool.labels, self.groups[index])).flatten()
        images = (drawings.unsqueeze(1) * TURNS + torch.arange(TURNS)).flatten()
        # the unit that stays on one side of a split: a drawing with its turns, or an image
        units = images.view(-1, 1) if self.settings.split == "wsn" else images.view(-1, TURNS)
        labels = self.pool.labels[units[:, 0] // TURNS]
        seed, share = self.seed.child("task", index), TEST_SHARE[self.settings.split]
        learn, test = stratified(labels, share, seed.child("test"))
        if self.settings.duplicates == "drop" and self.settings.split != "wsn":
            learn = unseen(learn, test, self.pool.digests[units[:, 0] // TURNS])
        share = self.settings.validation_share
        kept, held = stratified(labels[learn], share, seed.child("validation"))
        parts = Parts(*(units[rows].flatten() for rows in (learn[kept], learn[held], test)))
        return restrict(parts, self.labels, self.settings, seed)

    def __len__(self) -> int:
        return self.tasks

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        return item_of_group(
            index, self.groups[index], self.classes, self.parts(index), self.labels, self.take,
            PREPROCESSING,
        )  # fmt: skip

    def take(self, images: Tensor) -> Tensor:
        """The drawings of these images, turned."""
        drawings, turns = images // TURNS, images % TURNS
        taken = self.pool.take(drawings)
        for turn in range(1, TURNS):
            taken[turns == turn] = torch.rot90(taken[turns == turn], turn, (2, 3))
        return taken


streams.register("omniglot-rotation")(Benchmark(OmniglotSettings, OmniglotRotation))
