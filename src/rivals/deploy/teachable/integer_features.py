"""Features in whole numbers, so that Python and every device agree in every bit.

    bytes ─► steps: weights int8, activations uint8, sums int32 ─► sums over positions, int32
          ─► less those of common pictures, times a triangular matrix of int16 ─► int16

A sum is brought back to a byte by a whole multiplier and a shift to the right, rounded. Nothing
that is negative is shifted, which C leaves open. Here all is computed in float64 where numbers are
below 2⁵³, and they are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.deploy.teachable.calibrated_body import BATCH, CalibratedBody, limited
from rivals.deploy.teachable.feature_layers import IMAGE, FeatureStep
from rivals.errors import RivalsError

WEIGHT, ACTIVATION, FACTOR = 127, 255, 2**15 - 1  # the largest numbers that are stored
MULTIPLIER = 2**30  # about the largest multiplier of a step
MOST_SHIFT = 40


@dataclass(frozen=True)
class IntegerStep:
    """A step whose numbers are all whole; tensors are int64 here, and shorter in C."""

    plain: FeatureStep  # source, stride, padding, pool, added
    weight: Tensor  # (outputs, inputs, k, k), int8 in C
    bias: Tensor  # (outputs,), int32
    multiplier: Tensor  # (outputs,), int32
    added_multiplier: int
    shift: int

    def __call__(self, outputs: Sequence[Tensor], image: Tensor) -> Tensor:
        """Of bytes less the zero, and of the outputs before; all hold whole numbers in int64."""
        plain = self.plain
        read = image if plain.source == IMAGE else outputs[plain.source]
        weight, bias = self.weight.double(), self.bias.double()
        sums = F.conv2d(read.double(), weight, bias, plain.stride, plain.padding)
        if plain.pool > 1:
            sums = F.max_pool2d(sums, plain.pool)
        values = sums.long() * self.multiplier.view(-1, 1, 1)
        if plain.added is not None:
            values = values + outputs[plain.added] * self.added_multiplier
        rounded: Tensor = values.clamp(min=0) + 2 ** (self.shift - 1) >> self.shift
        return rounded.clamp(max=ACTIVATION)


class IntegerFeatures:
    """Whitened features in whole numbers: (n, d) int64 of bytes (n, channels, height, width)."""

    def __init__(self, body: CalibratedBody) -> None:
        self.body, self.zero = body, math.ceil(body.zero)
        scales = [largest / ACTIVATION for largest in body.ranges]
        self.steps: list[IntegerStep] = []
        for number, step in enumerate(body.steps):
            bias, read = step.bias, 1.0
            if step.source == IMAGE:
                bias = bias + step.weight.sum((1, 2, 3)) * (self.zero - body.zero)
            else:
                read = scales[step.source]
            added = 0.0 if step.added is None else scales[step.added]
            self.steps.append(integer_step(step, bias, read, added, scales[number]))
        one = scales[-1] / body.positions  # of a sum over positions
        self.centre = (body.centre / one).round().long()
        factor = body.factor * one
        largest = factor.abs().amax(1).tolist()
        self.shifts = [min(MOST_SHIFT, int(math.log2(FACTOR / each))) for each in largest]
        if min(self.shifts) < 1:
            raise RivalsError(
                f"The features of the ancestor '{body.name}' vary too little to be whitened in "
                "whole numbers; use tiny or small."
            )
        powers = torch.tensor([2.0**shift for shift in self.shifts], dtype=torch.float64)
        self.factor = (factor * powers.view(-1, 1)).round().long()

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        parts = []
        for some in images.split(BATCH):  # type: ignore[no-untyped-call]
            outputs: list[Tensor] = []
            for step in self.steps:
                outputs.append(step(outputs, some.long() - self.zero))
            sums = outputs[-1].sum((2, 3)) - self.centre
            exact = (sums.double() @ self.factor.double().T).long()
            shifts = torch.tensor(self.shifts)
            rounded = exact.abs() + (1 << (shifts - 1)) >> shifts  # away from zero
            parts.append(limited(rounded * exact.sign()))
        return torch.cat(parts)


def integer_step(
    step: FeatureStep, bias: Tensor, read: float, added: float, written: float
) -> IntegerStep:
    """A step whose input, added step and output count in these units."""
    units = step.weight.abs().amax((1, 2, 3)).clamp(min=1e-9) / WEIGHT  # for each output
    weight = (step.weight / units.view(-1, 1, 1, 1)).round().long()
    whole_bias = (bias / (units * read)).round().long()
    ratios = units * read / written
    shift = int(math.log2(MULTIPLIER / max(float(ratios.max()), added / written)))
    shift = min(max(shift, 1), MOST_SHIFT)
    largest = weight.abs().sum((1, 2, 3)) * ACTIVATION + whole_bias.abs()
    if int(largest.max()) >= 2**31:
        raise RivalsError(
            f"A convolution of the ancestor has {step.weight[0].numel()} weights an output, whose "
            "sums do not fit into 32 bits; use tiny or small."
        )
    multiplier = (ratios * 2.0**shift).round().long()
    return IntegerStep(
        step, weight, whole_bias, multiplier, round(added / written * 2**shift), shift
    )
