"""Batch normalisation with the gate folded into its scale and shift, so that a gate costs nothing.

y = f · (scale · x̂ + shift) forward, and on the way back as if the gate were b. Both are vectors
over channels, so no map is multiplied twice; equal to `gate(batch_norm(x), live)`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class GatedNorm(torch.autograd.Function):
    """Training-mode batch norm under a forward gate f and a backward gate b, (channels,) each."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, scale: Tensor, shift: Tensor, f: Tensor, b: Tensor, epsilon: float
    ) -> Tensor:
        out, batch_mean, batch_deviation = torch.native_batch_norm(
            values, scale * f, shift * f, None, None, True, 0.0, epsilon
        )
        ctx.save_for_backward(values, scale, shift, b, batch_mean, batch_deviation)
        ctx.epsilon = epsilon
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        values, scale, shift, b, batch_mean, batch_deviation = ctx.saved_tensors
        to_values, to_scale, to_shift = torch.ops.aten.native_batch_norm_backward(
            gradients[0], values, scale * b, None, None, batch_mean, batch_deviation, True,
            ctx.epsilon, [ctx.needs_input_grad[0], True, True],
        )  # fmt: skip
        to_gate = scale * to_scale + shift * to_shift
        return to_values, b * to_scale, b * to_shift, None, to_gate, None
