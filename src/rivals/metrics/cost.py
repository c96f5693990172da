"""What a plain network costs: weights, bytes, multiplications."""

from __future__ import annotations

from dataclasses import dataclass

import safetensors.torch
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class Cost:
    """Of one image through a plain network."""

    weights: int
    bytes: int  # as a safetensors file
    macs: int


def cost(network: nn.Module, input_shape: tuple[int, int, int]) -> Cost:
    """Count what is there; 1 MAC is 2 FLOPs."""
    weights = sum(p.numel() for p in network.parameters())
    size = len(safetensors.torch.save({k: v.contiguous() for k, v in network.state_dict().items()}))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, *input_shape))
    return Cost(weights, size, counter.get_total_flops() // 2)
