"""Subspaces of layer inputs: what GPM and FS-DGPM keep of a task in place of its images.

A layer's inputs are the columns of a matrix R (features, columns): one column per image for a
linear layer, one per patch for a convolution, so that the layer computes W R with W (units,
features). A step of W that is orthogonal to the inputs, ΔW R = 0, changes nothing for them. A basis
M (features, k) holds the directions with most of the energy ‖R‖²; it is found in the eigenvectors
of R Rᵀ, or of Rᵀ R where there are fewer columns than features: never in an SVD of R, which may be
huge. Bases are computed on the CPU in float64, which not every device has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from rivals.errors import RivalsError
from rivals.learn.state import State, StatePart
from rivals.nn.activations import Activations
from rivals.nn.dense_layers import DenseConv2d
from rivals.nn.dense_network import DenseNetwork
from rivals.settings import Settings

NOISE = 1e-12  # share of the energy below which a direction is a rounding error
FORWARD = 25  # images at a time


class SubspaceSettings(Settings):
    """How much of the inputs of earlier tasks is protected."""

    energy: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.97,),
        description="Share of the inputs' energy that a basis holds (ε): one number, or one for "
        "each layer.",
    )
    energy_step: float = Field(
        0.003, ge=0, allow_inf_nan=False, description="Added to energy with each task."
    )
    samples: int = Field(125, ge=1, description="Images whose inputs make a basis.")

    def check(self) -> None:
        super().check()
        if not self.energy:
            raise RivalsError("subspace.energy is empty; give at least one share, such as 0.97.")


class Subspace:
    """A basis of the inputs of earlier tasks for each layer; none in the first task."""

    def __init__(self, settings: SubspaceSettings, layers: int, device: torch.device) -> None:
        self.settings, self.device = settings, device
        self.energy = energy_of_layers(settings.energy, layers)
        self.bases: list[Tensor] = []  # (features, k) for each layer

    def inputs(
        self, network: DenseNetwork, batches: Sequence[tuple[str, Tensor]]
    ) -> list[LayerInputs]:
        """The inputs of the protected layers, over preprocessed images of several tasks."""
        return collect(network, batches)[: len(self.energy)]

    def extend(self, inputs: Sequence[LayerInputs], tasks: int, first_rule: str = "reach") -> None:
        """Add to each basis what it lacks of `inputs`, after `tasks` earlier tasks.

        `first_rule` counts directions where there is no basis yet; see `directions_needed`.
        """
        old = self.bases or [torch.zeros(each.features, 0) for each in inputs]
        step = self.settings.energy_step * tasks
        self.bases = [
            grow(
                basis, each, min(1.0, energy + step), "reach" if basis.shape[1] else first_rule
            ).to(self.device)
            for basis, each, energy in zip(old, inputs, self.energy, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return sum(basis.nbytes for basis in self.bases)

    def state(self, tasks: int) -> State:
        """The bases after `tasks` tasks; they do not change before the next one ends."""
        tensors = {f"layer{number}": basis for number, basis in enumerate(self.bases)}
        return {f"bases/{tasks}": StatePart(tensors, fixed=True)}

    def load(self, state: State) -> None:
        saved = next(part for name, part in state.items() if name.startswith("bases/")).tensors
        self.bases = [saved[f"layer{number}"].to(self.device) for number in range(len(saved))]


# Projections -------------------------------------------------------------------------------------


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
    """The patches that a convolution reads of one image: (channels · k · k, positions)."""
    return F.unfold(image, layer.kernel, padding=layer.padding, stride=layer.stride)[0]


def decay_gradients(optimizer: torch.optim.Optimizer | None, weight_decay: float) -> None:
    """Add weight decay to the gradients, so that it is projected with them; SGD adds no more."""
    assert optimizer is not None
    group = optimizer.param_groups[0]
    group["weight_decay"] = 0.0
    for weight in group["params"] if weight_decay else []:
        if weight.grad is not None:
            weight.grad.add_(weight.detach(), alpha=weight_decay)


# Bases -------------------------------------------------------------------------------------------


def energy_of_layers(energy: tuple[float, ...], layers: int) -> tuple[float, ...]:
    """The share of energy that each of so many layers protects."""
    if len(energy) not in (1, layers):
        raise RivalsError(
            f"subspace.energy has {len(energy)} values, but {layers} layers are protected; give "
            "one for all or one for each."
        )
    return energy if len(energy) == layers else energy * layers


class LayerInputs:
    """The inputs R of one layer: as they are while they are few, as R Rᵀ once they are many."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []  # (features, columns) each
        self.gram: Tensor | None = None  # (features, features)
        self.features = 0

    def add(self, part: Tensor) -> None:
        self.features = len(part)
        self.parts.append(part.cpu().double())
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
        """What `basis` (features, k) does not hold: directions (features, r) and their energies,
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
        """About 9 n³ for all eigenvectors of a symmetric matrix; the FLOP counter misses these."""
        side = sum(p.shape[1] for p in self.parts) if self.gram is None else len(self.gram)
        return 9.0 * side**3


def directions_needed(
    energies: Tensor, held: float, total: float, threshold: float, rule: str
) -> int:
    """How many directions (energies largest first) are needed beside a basis that holds `held`.

    `reach`, as in the papers: as few as hold the share `threshold` of the total. `below`: one
    fewer, as many as stay below it; official GPM counts like this in the first task.
    """
    if total <= 0:
        return 0
    share = (held + energies.cumsum(0)) / total
    below = int((share < threshold).sum())
    wanted = below if rule == "below" or held / total >= threshold else below + 1
    return min(wanted, int((energies > NOISE * total).sum()))


def grow(basis: Tensor, inputs: LayerInputs, threshold: float, rule: str = "reach") -> Tensor:
    """`basis` (features, k), extended until it holds `threshold` of the energy of `inputs`."""
    old = basis.cpu().double()
    directions, energies, total = inputs.beyond(old)
    held = total - float(energies.sum())
    count = directions_needed(energies, held, total, threshold, rule)
    new = directions[:, : min(count, len(old) - old.shape[1])]
    new = new - old @ (old.T @ new)  # again, since once leaves rounding errors
    return torch.cat([old, torch.linalg.qr(new).Q], 1).float()


def layer_inputs(network: DenseNetwork, images: Tensor, task: str) -> list[Tensor]:
    """The inputs of every layer of the body, in the order of `network.layers()`, and of heads."""
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
def collect(network: DenseNetwork, batches: Sequence[tuple[str, Tensor]]) -> list[LayerInputs]:
    """Inputs of every layer and of the heads, over preprocessed images (n, …) of several tasks."""
    network.learning(False)
    layers = [*network.layers(), None]
    found = [LayerInputs() for _ in layers]
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
