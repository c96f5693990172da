"""What a method saves: named tensors and plain facts, in parts; and how an optimiser joins them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


class StatePart:
    """One file of a checkpoint: tensors by name, and facts that JSON can hold.

    A `fixed` part never changes as long as it exists, so it is written once; its tensors may come
    as a function, which is then called no more often.
    """

    def __init__(
        self, tensors: Tensors | Callable[[], Tensors] | None = None,
        facts: dict[str, Any] | None = None, fixed: bool = False,
    ) -> None:  # fmt: skip
        self._tensors = {} if tensors is None else tensors
        self.facts = {} if facts is None else facts
        self.fixed = fixed

    @property
    def tensors(self) -> Tensors:
        return self._tensors() if callable(self._tensors) else self._tensors


State = dict[str, StatePart]  # by the name of the part


def optimiser_tensors(optimiser: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """The buffers of an optimiser under flat names, `prefix.parameter.buffer`."""
    return {
        f"{prefix}.{number}.{name}": value
        for number, buffers in optimiser.state_dict()["state"].items()
        for name, value in buffers.items()
        if isinstance(value, Tensor)
    }


def load_optimiser(
    optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], prefix: str
) -> None:
    """Give a fresh optimiser of the same parameters the buffers that were saved.

    A buffer lies in memory as its parameter does: fused optimisers walk both side by side.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith(prefix + "."):
            number, name = key.removeprefix(prefix + ".").split(".", 1)
            like = parameters[int(number)]
            if value.shape == like.shape:
                value = torch.empty_like(like, requires_grad=False).copy_(value)
            state.setdefault(int(number), {})[name] = value
    saved = optimiser.state_dict()
    saved["state"] = state
    optimiser.load_state_dict(saved)
