"""Is the heat of `rivals explain` faithful? Pictures lose their hottest parts first, or others.

    RIVALS_DATA=DIR python benchmarks/explain.py --out results/explain.csv

Five animals of CIFAR-10, 100 pictures a class, the ancestor of a new model; test pictures. Parts of
a picture are replaced by a blurred copy, a tenth more at each step: cells in the order of the heat,
in random order, or the coldest first. The mean of the answered class's probability over all steps
is the area under the curve: lower is better for the hottest first, higher for the coldest first.
Random orders are smooth like a heat map, for the same parts taken bit by bit hurt more.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from few import ANIMALS
from torch import Tensor

import rivals
from rivals.io.pictures import to_pixels
from rivals.streams.data.loading import load

STEPS = 10
ORDERS = ("hottest first", "random", "coldest first")


def pictures(test: bool, count: int) -> tuple[np.ndarray, list[str]]:
    """The first `count` of each animal."""
    data = load("cifar-10")
    split, classes = data.test if test else data.train, list(data.classes)
    labels = np.asarray(split.labels)
    places = [np.flatnonzero(labels == classes.index(name))[:count] for name in ANIMALS]
    images = np.moveaxis(np.asarray(split.images)[np.concatenate(places)], 1, -1)
    return images, [name for name in ANIMALS for _ in range(count)]


def blurred(image: Tensor) -> Tensor:
    """An image (channels, height, width), an eighth as sharp."""
    small = F.interpolate(image[None], scale_factor=1 / 8, mode="area")
    return F.interpolate(small, image.shape[1:], mode="bicubic")[0].clamp(0, 255)


def area(model: rivals.Model, image: Tensor, order: Tensor, task: str, label: str) -> float:
    """The mean probability of `label` while the pixels with the largest `order` are replaced."""
    rank = order.flatten().argsort(descending=True).argsort().view(order.shape)
    parts = [rank < rank.numel() * step / STEPS for step in range(STEPS + 1)]
    stages = torch.stack([torch.where(part, blurred(image), image) for part in parts])
    answers = model.answers(stages.round().to(torch.uint8).numpy(), task)
    return statistics.mean(
        choice.confidence for each in answers for choice in each.choices if choice.label == label
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--picture", type=Path, help="PNG for the explanation of a dog")
    parser.add_argument("--pictures", type=int, default=20, help="of each class")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, generator = [], torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        model = rivals.Model(Path(folder) / "model")
        model.learn(pictures(False, 100), "animals")
        shape = model.opened().description.input_shape
        if options.picture:
            found = model.explain(pictures(True, 1)[0][ANIMALS.index("dog")])
            found.save(options.picture)
            print(found)
        for picture in pictures(True, options.pictures)[0]:
            found = model.explain(picture)
            image = torch.from_numpy(to_pixels(picture, shape).copy()).float()
            noise = torch.rand(1, 1, 6, 6, generator=generator)
            heat = torch.from_numpy(found.heat)
            orders = (heat, F.interpolate(noise, shape[1:], mode="bicubic")[0, 0], -heat)
            rows.append([area(model, image, each, found.task, found.label) for each in orders])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(ORDERS)
        writer.writerows([f"{100 * value:.2f}" for value in row] for row in rows)
    for name, values in zip(ORDERS, zip(*rows, strict=True), strict=True):
        error = statistics.stdev(values) / len(values) ** 0.5
        print(f"{name}: {100 * statistics.mean(values):.1f} % ± {100 * error:.1f}")
    better = sum(hot < other for hot, other, _ in rows)
    print(f"hottest first hurts more than random on {better} of {len(rows)} pictures")


if __name__ == "__main__":
    main()
