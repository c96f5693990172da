"""How many pictures of other data sets a model refuses, and how well it names its own tasks.

    RIVALS_DATA=my/data python benchmarks/strangers.py PICTURES MODEL

PICTURES is what tests/picture_folders.py made, MODEL what was learned from it (docs/quickstart.md).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import rivals
from rivals.baselines.memory.pool_pictures import fitted
from rivals.io.pictures import to_pixels
from rivals.streams.data.loading import load

COUNT = 200
STRANGE = {"SVHN": "svhn", "notMNIST": "notmnist", "Omniglot": "omniglot", "CIFAR-100": "cifar-100"}


def strangers(shape: tuple[int, int, int]) -> dict[str, NDArray[np.uint8]]:
    """Test images of other data sets, classes nobody taught, and what is no picture at all."""
    found = {}
    for title, name in STRANGE.items():
        part = load(name).test
        some = part.images[:: max(1, len(part.labels) // COUNT)][:COUNT]
        found[title] = fitted(torch.from_numpy(np.array(some)), shape).numpy()
    digits = load("mnist").test
    others = digits.images[np.flatnonzero(np.asarray(digits.labels) > 4)[:COUNT]]
    found["MNIST, the digits 5 to 9"] = fitted(torch.from_numpy(np.array(others)), shape).numpy()
    random = np.random.default_rng(0)
    found["noise"] = random.integers(0, 256, (COUNT, *shape), np.uint8)
    flat = random.integers(0, 256, (COUNT, shape[0], 1, 1), np.uint8)
    found["one plain colour"] = np.broadcast_to(flat, (COUNT, *shape)).copy()
    return found


def main() -> None:
    torch.set_num_threads(1)
    pictures, model = Path(sys.argv[1]), rivals.Model(sys.argv[2])
    shape, own = model.opened().description.input_shape, []
    for task in [each.name for each in model.tasks]:
        files = sorted((pictures / "held" / task).glob("*/*"))
        images = np.stack([to_pixels(file, shape) for file in files])
        names = [file.parent.name for file in files]
        inferred, given = model.answers(images), model.answers(images, task)
        named = [each.task == task for each in inferred]
        right = [e.task == task and e.label == n for e, n in zip(inferred, names, strict=True)]
        known = [each.label == name for each, name in zip(given, names, strict=True)]
        row = " | ".join(f"{100 * np.mean(each):.1f}" for each in (named, right, known))
        print(f"| {task} | {row} |")
        own.append(images)
    for name, images in {"its own test pictures": np.concatenate(own),
                         **strangers(shape)}.items():  # fmt: skip
        shares = []
        for reject in (0.05, 0.1):
            answers = model.answers(images, reject=reject)
            shares.append(f"{100 * np.mean([each.rejected for each in answers]):.0f}")
        print(f"| {name} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
