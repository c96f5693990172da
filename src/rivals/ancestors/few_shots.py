"""How good features are for tasks of few pictures: five classes, 10, 20 or 80 pictures of each."""

from __future__ import annotations

import torch
from torch import Tensor

from rivals.naming.discriminant import discriminant
from rivals.seeds import Seed

WAYS, SHOTS, TESTED, DRAWS = 5, (10, 20, 80), 100, 20


def few_shot_accuracy(features: Tensor, classes: Tensor, within: Tensor) -> dict[str, float]:
    """Percent right of new pictures by a linear discriminant, the mean of random tasks.

    Args:
        features: (n, d).
        classes: (n,), any numbers.
        within: (d, d), the covariance of features around the means of other classes.
    """
    found = torch.unique(classes)
    result = {}
    for shots in SHOTS:
        right = 0.0
        for draw in range(DRAWS):
            generator = Seed(0).child("few", shots, draw).torch()
            chosen = found[torch.randperm(len(found), generator=generator)[:WAYS]]
            learned, tested = [], []
            for number in chosen:
                members = torch.nonzero(classes == number).flatten()
                members = members[torch.randperm(len(members), generator=generator)]
                learned.append(members[:shots])
                tested.append(members[shots : shots + TESTED])
            labels = torch.arange(WAYS).repeat_interleave(shots)
            weight, bias = discriminant(features[torch.cat(learned)], labels, within)
            scores = features[torch.cat(tested)] @ weight.T + bias
            truth = torch.cat([torch.full((len(t),), n) for n, t in enumerate(tested)])
            right += float((scores.argmax(1) == truth).float().mean()) / DRAWS
        result[str(shots)] = round(100 * right, 1)
    return result
