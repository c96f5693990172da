"""Accuracy with few pictures: what `rivals learn` reaches, beside plain baselines.

    python benchmarks/few.py --out results/few [--only animals] [--draws 5] [--learners none small]

Five classes at a time: animals of CIFAR-10 with 10, 20 and 80 pictures a class, 80 pictures a class
of Fashion-MNIST, SVHN and notMNIST, and 14 of Omniglot's characters. `tasks` are the ten tasks of
ten classes of CIFAR-100, learned one after the other by one model, with 20 or 100 pictures a class;
there the task is given, and in `tasks-unknown` it is not. Each draw takes other pictures, and where
there are more than five classes other classes; the test pictures are from the official test set,
100 a class (Omniglot: the 6 drawings of a character that were not learned; CIFAR-100: 50).

Learners: the names of ancestors, as `rivals learn --ancestor` takes them, with a share of new units
after a slash (`small/0.3`) where the pictures should not decide it, backbones of timm among them
(`timm:NAME=FILE`, with `--size` for their pictures), and three that are not ours: `pixels` and
`hog` (logistic regression on pixels and on histograms of oriented gradients) and `cnn` (a plain
network of four convolutions, 0.08 M weights). One row for each draw goes to few.csv, so that the
command goes on where it stopped; then the means are printed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rivals
from rivals.streams.data.loading import load

ANIMALS = ("bird", "cat", "deer", "dog", "frog")
SETS: dict[str, tuple[str, Any, tuple[int, ...]]] = {  # data set, classes, pictures a class
    "animals": ("cifar-10", ANIMALS, (10, 20, 80)),
    "fashion": ("fashion-mnist", 5, (80,)),
    "svhn": ("svhn", 5, (80,)),
    "notmnist": ("notmnist", 5, (80,)),
    "omniglot": ("omniglot", 5, (14,)),
    "tasks": ("cifar-100", 100, (20, 100)),
}
TIMM = "timm:"
TASKS = 10
TESTED, TESTED_IN_TASKS = 100, 50  # pictures a class
FIELDS = ("set", "pictures", "draw", "learner", "accuracy", "seconds", "bytes")
Pictures = NDArray[np.uint8]
Draw = tuple[Pictures, list[str], Pictures, list[str]]


def draw(name: str, shots: int, number: int) -> Draw:
    """Pictures to learn from and pictures to test with, and their labels."""
    data_set, classes, _ = SETS[name]
    data, chance = load(data_set), np.random.default_rng([number, shots])
    names = [str(each) for each in data.classes]
    learned, tested = (data.train, data.train) if name == "omniglot" else (data.train, data.test)
    if isinstance(classes, int):
        there = np.unique(np.asarray(learned.labels))
        chosen = sorted(chance.permutation(there)[:classes].tolist())
    else:
        chosen = [names.index(each) for each in classes]
    parts: list[tuple[list[Pictures], list[str]]] = [([], []), ([], [])]
    for each in chosen:
        members = chance.permutation(np.nonzero(np.asarray(learned.labels) == each)[0])
        others = members[shots:]
        if tested is not learned:
            others = chance.permutation(np.nonzero(np.asarray(tested.labels) == each)[0])
        some = TESTED_IN_TASKS if name == "tasks" else TESTED
        for part, split, index in zip(
            parts, (learned, tested), (members[:shots], others[:some]), strict=True
        ):
            part[0].append(np.asarray(split.images[np.sort(index)]))
            part[1].extend([names[each]] * len(index))
    (first, labels), (second, truth) = parts
    return np.concatenate(first), labels, np.concatenate(second), truth


def by_rivals(ancestor: str, data: Draw, size: int | None) -> tuple[float, int]:
    """Accuracy of `Model.learn`, and the bytes of the task."""
    images, labels, tested, truth = data
    share = ""
    if not ancestor.startswith(TIMM):  # what follows may be the path of a file
        ancestor, _, share = ancestor.partition("/")
    with tempfile.TemporaryDirectory() as folder:
        model = rivals.Model(Path(folder) / "model")
        learned = model.learn(
            (images, labels), "task", ancestor=ancestor, new=float(share) if share else None,
            size=size,
        )  # fmt: skip
        return model.test((tested, truth)).accuracy, learned.facts.bytes


def by_tasks(ancestor: str, data: Draw) -> Iterator[tuple[str, float, int]]:
    """The same for ten tasks in one model: accuracy with the task given, and without it."""
    images, labels, tested, truth = data
    names, bytes_of_tasks, right, total = list(dict.fromkeys(labels)), 0, 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        model = rivals.Model(Path(folder) / "model")
        for number in range(TASKS):
            own = names[number * 10 : number * 10 + 10]
            chosen = [place for place, label in enumerate(labels) if label in own]
            there = (images[chosen], [labels[place] for place in chosen])
            learned = model.learn(there, f"task {number}", ancestor=None if number else ancestor)
            bytes_of_tasks += learned.facts.bytes
        for number in range(TASKS):
            own = names[number * 10 : number * 10 + 10]
            chosen = [place for place, label in enumerate(truth) if label in own]
            there = (tested[chosen], [truth[place] for place in chosen])
            right += model.test(there, f"task {number}").accuracy * len(chosen)
            total += len(chosen)
        yield "tasks", right / total, bytes_of_tasks // TASKS
        yield "tasks-unknown", model.test((tested, truth)).accuracy, bytes_of_tasks // TASKS


def by_regression(data: Draw, hog: bool) -> float:
    """Logistic regression on pixels, or on histograms of oriented gradients."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    images, labels, tested, truth = data
    rows = [histograms(each) if hog else each.reshape(len(each), -1) / 255
            for each in (images, tested)]  # fmt: skip
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=500))
    model.fit(rows[0], labels)
    return float(100 * model.score(rows[1], truth))


def histograms(images: Pictures) -> NDArray[np.float64]:
    """Nine orientations in cells of 4×4 pixels, cells normalised in groups of 2×2."""
    grey = images.reshape(len(images), -1, *images.shape[-2:]).mean(1) / 255
    down, across = np.gradient(grey, axis=(1, 2))
    strength = np.hypot(down, across)
    angle = (np.arctan2(down, across) % np.pi) / np.pi * 9
    cells = grey.shape[1] // 4, grey.shape[2] // 4
    found = np.zeros((len(grey), *cells, 9))
    for number in range(9):
        near = np.maximum(0, 1 - np.abs((angle - number - 0.5 + 4.5) % 9 - 4.5)) * strength
        near = near[:, : cells[0] * 4, : cells[1] * 4]
        found[..., number] = near.reshape(len(grey), cells[0], 4, cells[1], 4).sum((2, 4))
    blocks = np.concatenate(
        [found[:, y : cells[0] - 1 + y, x : cells[1] - 1 + x] for y in (0, 1) for x in (0, 1)], 3
    )
    norm = np.sqrt((blocks**2).sum(3, keepdims=True) + 1e-4)
    return np.asarray((blocks / norm).reshape(len(grey), -1))


def by_cnn(data: Draw) -> float:
    """Four convolutions with batch norm, trained with crops and a learning rate that falls."""
    import torch
    import torch.nn.functional as F  # noqa: N812
    from torch import nn

    images, labels, tested, truth = data
    names = sorted(set(labels))
    torch.manual_seed(0)
    channels, widths, layers = images.shape[1], (16, 32, 64, 104), list[nn.Module]()
    for number, width in enumerate(widths):
        before = widths[number - 1] if number else channels
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if number < 3 else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(widths[-1], len(names)))
    pixels = [torch.from_numpy(each).float() / 64 - 2 for each in (images, tested)]
    wanted = torch.tensor([names.index(label) for label in labels])
    size, steps = min(32, len(wanted) // 2), max(400, 5 * len(wanted) // 32)
    optimiser = torch.optim.SGD(network.parameters(), 0.05, 0.9, weight_decay=5e-4)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    side = images.shape[-1]
    for _ in range(steps):
        index = torch.randperm(len(wanted))[:size]
        large = F.pad(pixels[0][index], (4,) * 4, mode="replicate")
        top, left = torch.randint(0, 9, (2,)).tolist()
        batch = large[:, :, top : top + side, left : left + side]
        optimiser.zero_grad()
        F.cross_entropy(network(batch), wanted[index]).backward()
        optimiser.step()
        falling.step()
    with torch.no_grad():
        found = torch.cat([network.eval()(part).argmax(1) for part in pixels[1].split(200)])
    right = [names[label] == true for label, true in zip(found.tolist(), truth, strict=True)]
    return 100 * float(np.mean(right))


def shown(learner: str, size: int | None) -> str:
    """A learner in the table: a backbone without its file, with the size of its pictures."""
    if not learner.startswith(TIMM):
        return learner
    return learner.partition("=")[0] + (f"@{size}" if size else "")


def measure(
    name: str, learner: str, data: Draw, size: int | None
) -> Iterator[tuple[str, float, int]]:
    """The set that a row is for, accuracy in percent, bytes of a task."""
    if learner in ("pixels", "hog"):
        yield name, by_regression(data, learner == "hog"), 0
    elif learner == "cnn":
        yield name, by_cnn(data), 0
    elif name == "tasks":
        yield from by_tasks(learner, data)
    else:
        yield name, *by_rivals(learner, data, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/few"))
    parser.add_argument("--only", nargs="*", choices=list(SETS), default=list(SETS))
    parser.add_argument("--shots", nargs="*", type=int, help="only so many pictures a class")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument(
        "--learners", nargs="*", default=["tiny", "small", "none", "pixels", "hog", "cnn"]
    )
    parser.add_argument("--size", type=int, help="pixels a side; default: as the ancestor knows")
    wanted = parser.parse_args()
    wanted.out.mkdir(parents=True, exist_ok=True)
    path = wanted.out / "few.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    done = {(r["set"], r["pictures"], r["draw"], r["learner"]) for r in rows}
    for name in wanted.only:
        for shots in SETS[name][2]:
            for number in range(wanted.draws):
                for learner in wanted.learners:
                    label = shown(learner, wanted.size)
                    if (name, str(shots), str(number), label) in done:
                        continue
                    if wanted.shots and shots not in wanted.shots:
                        continue
                    if name == "tasks" and learner in ("pixels", "hog", "cnn"):
                        continue  # they learn one task
                    data, began = draw(name, shots, number), time.monotonic()
                    for what, accuracy, size in list(measure(name, learner, data, wanted.size)):
                        seconds = time.monotonic() - began
                        values = (what, str(shots), str(number), label, f"{accuracy:.2f}",
                                  f"{seconds:.1f}", size)  # fmt: skip
                        rows.append(dict(zip(FIELDS, values, strict=True)))
                        with path.open("a", newline="") as file:
                            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                            if file.tell() == 0:
                                writer.writeheader()
                            writer.writerow(rows[-1])
    for key in dict.fromkeys((r["set"], r["pictures"], r["learner"]) for r in rows):
        same = [r for r in rows if (r["set"], r["pictures"], r["learner"]) == key]
        accuracies = [float(r["accuracy"]) for r in same]
        spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
        seconds = statistics.median(float(r["seconds"]) for r in same)
        print(
            f"{key[0]:13} {key[1]:>3} pictures  {key[2]:8} {statistics.mean(accuracies):5.1f} "
            f"± {spread:.1f} %  {seconds:5.1f} s  {same[0]['bytes']} bytes"
        )


if __name__ == "__main__":
    main()
