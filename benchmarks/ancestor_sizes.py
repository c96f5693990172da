"""With how many pixels an ancestor should look at small pictures: tasks of classes it never saw.

    RIVALS_DATA=DIR python benchmarks/ancestor_sizes.py

Twenty classes of Tiny-ImageNet were held out of the training of ancestors. Their pictures are made
32 pixels wide, enlarged again, and learned by a linear discriminant, five classes at a time.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.ancestors import SHIPPED
from rivals.ancestors.ancestor import Ancestor, shipped
from rivals.ancestors.few_shots import few_shot_accuracy
from rivals.ancestors.train import SIZES, Pictures, prepare
from rivals.nn.network_plan import NetworkPlan
from rivals.nn.rival_network import ANCESTOR, RivalNetwork
from rivals.seeds import Seed

IMAGES = 200  # computed at once


def network(ancestor: Ancestor) -> RivalNetwork:
    found = NetworkPlan(ancestor.network(2), (3, SIZES[0], SIZES[0])).rivals(Seed(0))
    ancestor.give_to(found)
    return found.learning(False)


@torch.no_grad()
def features(body: RivalNetwork, pixels: Tensor, size: int) -> Tensor:
    parts = []
    for some in pixels.split(IMAGES):  # type: ignore[no-untyped-call]
        if size != some.shape[-1]:
            some = F.interpolate(some, (size, size), mode="bilinear", align_corners=False)
        parts.append(body.flow(prepare(some), ANCESTOR).values)
    return torch.cat(parts)


def main() -> None:
    torch.set_num_threads(1)
    pictures = Pictures.load()
    small = pictures.some(pictures.unseen, SIZES[0])
    for name in SHIPPED:
        ancestor = shipped(name)
        body, classes = network(ancestor), pictures.classes[pictures.unseen]
        for size in SIZES:
            few = few_shot_accuracy(features(body, small, size), classes, ancestor.within)
            print(f"{name}, {size} pixels: {few}", flush=True)


if __name__ == "__main__":
    main()
