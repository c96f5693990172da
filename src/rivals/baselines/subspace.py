"""Subspaces of layer inputs: what GPM and FS-DGPM keep of a task in place of its images.

A layer's inputs are the columns of a matrix R (features, columns): one column an image for a linear
layer, one a patch for a convolution, so that the layer computes W R with W (units, features). A
step of W that is orthogonal to the inputs, ΔW R = 0, changes nothing for them. A basis M (features,
k) holds the directions with most of the energy ‖R‖²; it is found in the eigenvectors of R Rᵀ, or of
Rᵀ R where there are fewer columns than features: never in an SVD of R, which may be huge.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rivals.errors import RivalsError
from rivals.nn.activations import Activations
from rivals.nn.dense_layers import DenseConv2d
from rivals.nn.dense_network import DenseNetwork

RULES = ("reach", "below")
NOISE = 1e-12  # share of the energy below which a direction is rounding
FORWARD = 25  # images at a time


def within(gradient: Tensor, basis: Tensor, importance: Tensor | None = None) -> Tensor:
    """The part of `gradient` (units, …) in the subspace: G M Mᵀ, or G M diag(λ) Mᵀ."""
    coordinates = gradient.flatten(1) @ basis  # (units, k)
    if importance is not None:
        coordinates = coordinates * importance
    return (coordinates @ basis.T).view(gradient.shape)


def away_from(gradient: Tensor, basis: Tensor, importance: Tensor | None = None) -> Tensor:
    """What is left of `gradient` (units, …) without its part in the subspace."""
    return gradient - within(gradient, basis, importance)


def patches(layer: DenseConv2d, image: Tensor) -> Tensor:
    """What a convolution reads of one image (1, channels, …): (channels · k · k, positions)."""
    return F.unfold(image, layer.kernel, padding=layer.padding, stride=layer.stride)[0]


def check_energy(energy: tuple[float, ...]) -> None:
    if not energy or not all(0 < share <= 1 for share in energy):
        raise RivalsError(f"energy is {energy}, but must be shares above 0 and up to 1.")


def thresholds(energy: tuple[float, ...], layers: int) -> tuple[float, ...]:
    """The share that each of so many layers protects."""
    if len(energy) not in (1, layers):
        raise RivalsError(
            f"energy has {len(energy)} values, but {layers} layers are protected; give one for "
            "all or one for each."
        )
    return energy if len(energy) == layers else energy * layers


class Inputs:
    """The inputs R of one layer: as they are while they are few, as R Rᵀ once they are many."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []  # (features, columns) each
        self.gram: Tensor | None = None  # (features, features)
        self.features = 0

    def add(self, part: Tensor) -> None:
        self.features = len(part)
        self.parts.append(part.double())
        if sum(p.shape[1] for p in self.parts) > self.features:
            self.fold()

    def fold(self) -> None:
        """Exchange the columns for their Gram matrix."""
        if self.parts:
            seen = torch.cat(self.parts, 1)
            product = seen @ seen.T
            self.gram = product if self.gram is None else self.gram + product
            self.parts = []

    def beyond(self, basis: Tensor) -> tuple[Tensor, Tensor, float]:
        """What `basis` (features, k) does not hold: directions (features, r), the energy of each,
        largest first; and the energy of all inputs."""
        if self.gram is None:
            seen = torch.cat(self.parts, 1)
            total = float(seen.square().sum())
            rest = seen - basis @ (basis.T @ seen)
            energies, vectors = torch.linalg.eigh(rest.T @ rest)
            directions = rest @ vectors / energies.clamp(min=1e-300).sqrt()
        else:
            self.fold()
            total = float(self.gram.trace())
            rest = self.gram - basis @ (basis.T @ self.gram)
            rest = rest - (rest @ basis) @ basis.T
            energies, directions = torch.linalg.eigh((rest + rest.T) / 2)
        return directions.flip(1), energies.flip(0).clamp(min=0), total

    def decomposition_flops(self) -> float:
        """About 9 n³ for all eigenvectors of a symmetric matrix, which no counter knows."""
        side = sum(p.shape[1] for p in self.parts) if self.gram is None else len(self.gram)
        return 9.0 * side**3


def enough(energies: Tensor, held: float, total: float, threshold: float, rule: str) -> int:
    """How many directions (energies largest first) are needed beside a basis that holds `held`.

    `reach`, as papers say: as few as hold the share `threshold` of the total. `below`: one fewer,
    as many as stay below it; official GPM counts so in the first task.
    """
    if total <= 0:
        return 0
    share = (held + energies.cumsum(0)) / total
    below = int((share < threshold).sum())
    wanted = below if rule == "below" or held / total >= threshold else below + 1
    return min(wanted, int((energies > NOISE * total).sum()))


def grow(basis: Tensor, inputs: Inputs, threshold: float, rule: str = "reach") -> Tensor:
    """`basis` (features, k) and what it takes to hold `threshold` of the energy of `inputs`."""
    old = basis.double()
    directions, energies, total = inputs.beyond(old)
    held = total - float(energies.sum())
    count = enough(energies, held, total, threshold, rule)
    new = directions[:, : min(count, len(old) - old.shape[1])]
    new = new - old @ (old.T @ new)  # again, since once leaves rounding errors
    return torch.cat([old, torch.linalg.qr(new).Q], 1).float()


def layer_inputs(network: DenseNetwork, images: Tensor, task: str) -> list[Tensor]:
    """What every layer of the body reads, in the order of `network.layers()`, and what heads do."""
    layers = network.layers()
    seen: dict[int, Tensor] = {}

    def look(number: int, flow: Activations) -> None:
        seen[number] = flow.values

    hooks = [
        layer.register_forward_pre_hook(lambda _, flows, number=number: look(number, flows[0]))
        for number, layer in enumerate(layers)
    ]
    try:
        end = network.flow(images, task).values
    finally:
        for hook in hooks:
            hook.remove()
    return [*(seen[number] for number in range(len(layers))), end]


@torch.no_grad()
def collect(network: DenseNetwork, batches: Sequence[tuple[str, Tensor]]) -> list[Inputs]:
    """Inputs of every layer and of the heads, over prepared images (n, …) of several tasks."""
    network.learning(False)
    layers = [*network.layers(), None]
    found = [Inputs() for _ in layers]
    for task, images in batches:
        for part in torch.split(images, FORWARD):
            read = layer_inputs(network, part, task)
            for layer, values, inputs in zip(layers, read, found, strict=True):
                if isinstance(layer, DenseConv2d):
                    for image in torch.split(values, 1):
                        inputs.add(patches(layer, image))
                else:
                    inputs.add(values.T)
    return found
