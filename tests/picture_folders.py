"""Folders of real pictures, a subfolder for each class, made from the data sets under $RIVALS_DATA.

python tests/picture_folders.py DIR [PICTURES OF A CLASS TO LEARN FROM, 100]

DIR/digits DIR/clothes DIR/things     to learn from
DIR/held/digits …                     to ask about: test images of the same data sets
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from rivals.streams.data.loading import load

TASKS = {  # task: data set, its classes
    "digits": ("mnist", (0, 1, 2, 3, 4)),
    "clothes": ("fashion-mnist", (0, 1, 5, 7, 8)),
    "things": ("cifar-10", (0, 1, 4, 7, 8)),
    "numbers": ("svhn", (1, 2, 3, 4, 5)),
}
ENDINGS = {"mnist": "png", "fashion-mnist": "bmp", "cifar-10": "jpg", "svhn": "png"}


def write(folder: Path, task: str, learned: int, held: int) -> None:
    """`learned` pictures a class into folder/task, `held` test pictures into folder/held/task."""
    name, classes = TASKS[task]
    data = load(name)
    for place, part, count in (
        (folder / task, data.train, learned),
        (folder / "held" / task, data.test, held),
    ):
        for label in classes:
            own = place / str(data.classes[label]).replace("/", "-")
            own.mkdir(parents=True)
            for number in np.flatnonzero(np.asarray(part.labels) == label)[:count].tolist():
                picture(part.images[number]).save(own / f"{number}.{ENDINGS[name]}")


def picture(pixels: np.ndarray) -> Image.Image:
    """(channels, height, width) bytes as a picture."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1))


if __name__ == "__main__":
    learned = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    for task in ("digits", "clothes", "things"):
        write(Path(sys.argv[1]), task, learned, 40)
