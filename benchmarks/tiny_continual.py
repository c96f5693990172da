"""Tiny continual: five streams that a device learns task by task, as docs/tiny-continual.md says.

    python benchmarks/tiny_continual.py --out results/tiny-continual [--only animals] [--draws 3]

Systems: `c-int8` and `c-float`, the two kinds of `rivals export --to c --teachable` with the
ancestor `tiny` (in Python, which has their arithmetic in every bit); `package`, `rivals learn
--ancestor tiny`; `pixels`, the nearest class mean of pictures of 16 × 16 pixels. One row for each
state goes to tiny-continual.csv, so that the command goes on where it stopped; then the table of
docs/tiny-continual.md is printed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import rivals
from rivals.deploy.teachable.calibrated_body import FloatFeatures
from rivals.deploy.teachable.integer_features import IntegerFeatures
from rivals.deploy.teachable.taught_state import TaughtState
from rivals.deploy.teachable.teachable_source import of_ancestor
from rivals.io.pictures import to_pixels
from rivals.streams.data.loading import load

SHAPE = (3, 48, 48)
SHOWN, TESTED = 20, 50  # pictures a class
STREAMS: dict[str, tuple[str, list[list[int]]]] = {  # data set, and the classes of its tasks
    "animals": ("cifar-10", [[2, 3], [4, 5], [6, 7]]),
    "clothes": ("fashion-mnist", [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]),
    "house-numbers": ("svhn", [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]),
    "letters": ("notmnist", [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]),
    "things": ("cifar-100", [[4 * task + place for place in range(4)] for task in range(5)]),
}
FIELDS = ("stream", "system", "draw", "after", "known", "unknown")
FORGOTTEN = "forget"


class System(ABC):
    """Something that learns classes of tasks, forgets tasks and names pictures."""

    @abstractmethod
    def learn(self, task: str, images: Tensor, names: list[str]) -> None: ...

    @abstractmethod
    def forget(self, task: str) -> None: ...

    @abstractmethod
    def names(self, images: Tensor, task: str | None) -> list[str]: ...


class Device(System):
    """Class means of features, in C or of pixels."""

    def __init__(self, features: Any) -> None:
        self.features, self.state = features, TaughtState(len(features(torch.zeros(1, *SHAPE))[0]))

    def learn(self, task: str, images: Tensor, names: list[str]) -> None:
        for row, name in zip(self.features(images).numpy(), names, strict=True):
            self.state.learn(row, task, name)

    def forget(self, task: str) -> None:
        self.state.forget(task)

    def names(self, images: Tensor, task: str | None) -> list[str]:
        return self.state.names(self.features(images).numpy(), task)


class Package(System):
    """A model of `rivals learn`."""

    def __init__(self, folder: Path) -> None:
        self.model = rivals.Model(folder / "model")

    def learn(self, task: str, images: Tensor, names: list[str]) -> None:
        first = not self.model.path.exists()
        self.model.learn((images.numpy(), names), task, ancestor="tiny" if first else None)

    def forget(self, task: str) -> None:
        self.model.drop(task)

    def names(self, images: Tensor, task: str | None) -> list[str]:
        return [each.label for each in self.model.predict(list(images.numpy()), task=task)]


def pixels(images: Tensor) -> Tensor:
    small = F.interpolate(images.float(), (16, 16), mode="bilinear", antialias=True)
    return small.flatten(1).round().long()


@cache
def features_of(system: str) -> Any:
    """Features are made once for all streams."""
    kinds = {"c-int8": IntegerFeatures, "c-float": FloatFeatures}
    return cache(pixels if system == "pixels" else kinds[system](of_ancestor("tiny").body))


SYSTEMS = ("c-int8", "c-float", "package", "pixels")


def looked_at(split: Any, members: Any) -> Tensor:
    """Pictures as a device sees them."""
    parts = [np.asarray(split.images[index]) for index in members]
    parts = [each[0] if len(each) == 1 else each.transpose(1, 2, 0) for each in parts]
    return torch.from_numpy(np.stack([to_pixels(each, SHAPE, 255.0) for each in parts]))


@cache
def pictures(stream: str, number: int, draw: int) -> tuple[Tensor, Tensor]:
    """Of one class: those that are shown, and those to test with, from the official test set."""
    data, chance = load(STREAMS[stream][0]), np.random.default_rng([draw, number])
    parts = []
    for split, count in ((data.train, SHOWN), (data.test, TESTED)):
        members = chance.permutation(np.flatnonzero(np.asarray(split.labels) == number))
        parts.append(looked_at(split, members[:count]))
    return parts[0], parts[1]


def measure(stream: str, system: System, draw: int) -> Iterator[tuple[str, float, float]]:
    """After each task, and after the first was forgotten: percent right, task given and not."""
    tasks = STREAMS[stream][1]
    for after, numbers in enumerate(tasks):
        shown = [pictures(stream, number, draw)[0] for number in numbers]
        names = [str(number) for number, some in zip(numbers, shown, strict=True) for _ in some]
        system.learn(f"task {after}", torch.cat(shown), names)
        yield str(after + 1), *accuracy(stream, system, draw, range(after + 1))
    system.forget("task 0")
    yield FORGOTTEN, *accuracy(stream, system, draw, range(1, len(tasks)))


def accuracy(stream: str, system: System, draw: int, tasks: range) -> tuple[float, float]:
    known, unknown = [], []
    for task in tasks:
        for number in STREAMS[stream][1][task]:
            images = pictures(stream, number, draw)[1]
            for found, given in ((known, f"task {task}"), (unknown, None)):
                found += [name == str(number) for name in system.names(images, given)]
    return 100 * float(np.mean(known)), 100 * float(np.mean(unknown))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/tiny-continual"))
    parser.add_argument("--only", nargs="*", choices=list(STREAMS), default=list(STREAMS))
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--draws", type=int, default=3)
    wanted = parser.parse_args()
    wanted.out.mkdir(parents=True, exist_ok=True)
    path = wanted.out / "tiny-continual.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    done = {(r["stream"], r["system"], r["draw"]) for r in rows if r["after"] == FORGOTTEN}
    for stream in wanted.only:
        for draw in range(wanted.draws):
            for name in wanted.systems:
                if (stream, name, str(draw)) in done:
                    continue
                with tempfile.TemporaryDirectory() as room:
                    package = name == "package"
                    system = Package(Path(room)) if package else Device(features_of(name))
                    found = [
                        (stream, name, str(draw), after, f"{known:.2f}", f"{unknown:.2f}")
                        for after, known, unknown in measure(stream, system, draw)
                    ]
                rows += [dict(zip(FIELDS, row, strict=True)) for row in found]
                with path.open("a", newline="") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    if file.tell() == 0:
                        writer.writerow(FIELDS)
                    writer.writerows(found)
    print("\n".join(table(rows)))


def table(rows: list[dict[str, str]]) -> list[str]:
    """The table of the page: percent right, task given / not given, means of the draws."""
    columns = [(name, None) for name in SYSTEMS] + [("c-int8", FORGOTTEN)]
    heads = ["", *(f"`{name}`" for name in SYSTEMS), "`c-int8`, first forgotten"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for stream, (_, tasks) in STREAMS.items():
        cells = [f"`{stream}`"]
        for name, after in columns:
            key = (stream, name, after or str(len(tasks)))
            same = [r for r in rows if (r["stream"], r["system"], r["after"]) == key]
            kinds = ("known", "unknown") if same else ()
            means = [statistics.mean(float(row[kind]) for row in same) for kind in kinds]
            cells.append(" / ".join(f"{mean:.1f}" for mean in means))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
