"""What is usual in the features of a shipped ancestor: how pictures of any kind lie in them.

    python -m rivals.ancestors.background small --out FOLDER

Roots of the features of pictures that the ancestor was trained on, every seventh in two sizes:
their mean, their covariance, and their covariance around the means of classes, with 16 bits. Tasks
are named in this space (naming/feature_space.py). The checksum goes into the ancestor's card. It
takes a minute or two, and needs the complete Tiny-ImageNet, as the training does.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.ancestors.ancestor import shipped
from rivals.ancestors.shipped_file import PLACE, SHIPPED
from rivals.ancestors.train import EVALUATED, VIEWS, Pictures, prepare
from rivals.io.files import digest, write_bytes, write_json
from rivals.naming.class_sums import Array, ClassSums
from rivals.nn.network_plan import NetworkPlan
from rivals.seeds import Seed

EVERY = 7  # of the pictures that were trained on


@torch.no_grad()
def rows_of(name: str, pictures: Pictures, index: Tensor, view: str) -> Array:
    """Roots of the features of pictures: (n, d)."""
    size, shown = VIEWS[view]
    ancestor = shipped(name)
    network = NetworkPlan(ancestor.network(1), (3, shown, shown)).rivals(Seed(0))
    network.adopt(*ancestor.layers_for(network), ancestor.within)
    network.learning(False)
    body, found = network.cut_features(), []
    for some in index.split(EVALUATED):  # type: ignore[no-untyped-call]
        pixels = pictures.some(some, size)
        if shown != size:
            pixels = F.interpolate(pixels, (shown,) * 2, mode="bilinear", align_corners=False)
        found.append(body(prepare(pixels)).numpy())
    rows: Array = np.sqrt(np.concatenate(found).clip(min=0).astype(np.float64))
    return rows


def background(rows: list[Array], labels: Array) -> dict[str, Array]:
    """What the file holds, of the rows of every view."""
    whole = np.concatenate(rows)
    apart = whole - whole.mean(0)
    within = []
    for each in rows:
        sums = ClassSums.of(each, labels, int(labels.max()) + 1)
        assert sums.scatter is not None
        within.append(sums.scatter / sums.freedom)
    half = np.triu_indices(whole.shape[1])  # both are symmetric
    found = {
        "within": np.mean(within, 0)[half],
        "mean": whole.mean(0),
        "covariance": (apart.T @ apart / len(whole))[half],
    }
    return {name: each.astype(np.float16) for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m rivals.ancestors.background")
    parser.add_argument("name", choices=SHIPPED)
    parser.add_argument("--out", type=Path, default=PLACE, help="folder of the card and the file")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    pictures = Pictures.load()
    index = pictures.train[::EVERY]
    rows = [rows_of(wanted.name, pictures, index, view) for view in VIEWS]
    data = safetensors.numpy.save(background(rows, pictures.labels[index].numpy()))
    write_bytes(wanted.out / f"{wanted.name}.background.safetensors", data)
    card = shipped(wanted.name).card
    write_json(wanted.out / f"{wanted.name}.json", {**card, "background": digest(data)})
    print(f"{len(index):,} pictures in {len(rows)} sizes, {len(data):,} bytes")


if __name__ == "__main__":
    main()
