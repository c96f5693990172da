"""What a method saves: parts of named tensors and plain facts; optimisers and task records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rivals.naming.task_record import TaskRecord
from rivals.streams.task import Preprocessing

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


def pack_records(known: Mapping[str, TaskRecord]) -> StatePart:
    """The tasks as a part of a state: facts by name, tensors by the task's number."""
    facts = {
        name: {
            "classes": list(task.classes),
            "preprocessing": vars(task.preprocessing),
            "learned": task.kept is not None,
        }
        for name, task in known.items()
    }
    tensors = {
        f"{number}.{name}": tensor
        for number, task in enumerate(known.values())
        for name, tensor in (task.kept or {}).items()
    }
    return StatePart(tensors, {"known": facts})


def unpack_records(part: StatePart) -> dict[str, TaskRecord]:
    """The tasks as `pack_records` left them."""
    kept: dict[int, dict[str, Tensor]] = {}
    for key, tensor in part.tensors.items():
        number, name = key.split(".", 1)
        kept.setdefault(int(number), {})[name] = tensor
    return {
        name: TaskRecord(
            tuple(facts["classes"]),
            _preprocessing(facts["preprocessing"]),
            kept.get(number, {}) if facts["learned"] else None,
        )
        for number, (name, facts) in enumerate(part.facts["known"].items())
    }


def _preprocessing(facts: dict[str, Any]) -> Preprocessing:
    return Preprocessing(facts["scale"], tuple(facts["mean"]), tuple(facts["std"]))
