"""What both kinds of features are made from: a frozen network in steps, and a fixed head over it.

The head whitens: L⁻¹ of Σ = L Lᵀ, the covariance of features within classes that the ancestor
brings with it. After it all directions have deviation UNIT, and the linear discriminant of the
package is the nearest class mean, for |x − μ|² is then (x − μ)ᵀ Σ⁻¹ (x − μ). L⁻¹ is triangular, so
half of its numbers are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rivals.deploy.teachable.dead_leaves import dead_leaves
from rivals.deploy.teachable.feature_layers import FeatureStep, feature_steps, outputs_of
from rivals.errors import RivalsError
from rivals.naming.discriminant import covariance
from rivals.streams.task import Preprocessing

UNIT = 256  # of a whitened feature, in one standard deviation
LARGEST = 2**15 - 1  # of a whitened feature
CALIBRATION = 128  # pictures
BATCH = 32


@dataclass(frozen=True)
class CalibratedBody:
    """A network without head in float64, and what is known of its activations."""

    name: str
    input_shape: tuple[int, int, int]
    steps: tuple[FeatureStep, ...]  # the first one reads bytes less `zero`
    zero: float  # the byte that padding stands for
    ranges: tuple[float, ...]  # the largest output of every step
    positions: int  # of the last step
    centre: Tensor  # (d,): the mean of features of common pictures
    factor: Tensor  # (d, d): UNIT times L⁻¹

    def outputs(self, images: Tensor) -> list[Tensor]:
        """Of every step, of bytes (n, channels, height, width)."""
        return outputs_of(self.steps, images.double() - self.zero)


@torch.no_grad()
def calibrated_body(
    name: str, network: nn.Module, within: Tensor, input_shape: tuple[int, int, int],
    preparation: Preprocessing, images: Tensor | None = None,
) -> CalibratedBody:  # fmt: skip
    """The body of an ancestor, calibrated with pictures (n, *input_shape) or with dead leaves."""
    if within.dim() == 1:
        raise RivalsError(
            f"The ancestor '{name}' brings no covariance of its features, which teachable C "
            "stands on; make one of a run, or use tiny or small."
        )
    first, *others = feature_steps(network, name)
    zeros = [preparation.scale * mean for mean in preparation.mean]
    zero = sum(zeros) / len(zeros)
    scales = torch.tensor([1 / (preparation.scale * std) for std in preparation.std])
    weight = first.weight * scales.double().view(1, -1, 1, 1)
    missing = torch.tensor([zero - each for each in zeros], dtype=torch.float64)
    bias = first.bias + weight.sum((2, 3)) @ missing
    steps = (replace(first, weight=weight, bias=bias), *others)
    if images is None:
        images = dead_leaves(CALIBRATION, input_shape)
    ranges, features = [0.0] * len(steps), []
    for some in images.split(BATCH):  # type: ignore[no-untyped-call]
        found = outputs_of(steps, some.double() - zero)
        ranges = [max(known, float(o.max())) for known, o in zip(ranges, found, strict=True)]
        features.append(found[-1].mean((2, 3)))
    positions = found[-1].shape[2] * found[-1].shape[3]
    spread = covariance([], within)
    factor = UNIT * torch.linalg.inv(torch.linalg.cholesky(spread))
    return CalibratedBody(
        name, input_shape, steps, zero, tuple(max(each, 1e-6) for each in ranges), positions,
        torch.cat(features).mean(0), torch.tril(factor),
    )  # fmt: skip


def limited(values: Tensor) -> Tensor:
    """Whitened features as int16 holds them."""
    return values.clamp(-LARGEST, LARGEST).long()


class FloatFeatures:
    """Whitened features, the network in floating point: (n, d) int64 of bytes."""

    def __init__(self, body: CalibratedBody) -> None:
        self.body = body

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        body, parts = self.body, []
        for some in images.split(BATCH):  # type: ignore[no-untyped-call]
            features = body.outputs(some)[-1].mean((2, 3)) - body.centre
            parts.append(limited((features @ body.factor.T).round()))
        return torch.cat(parts)
