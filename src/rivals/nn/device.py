"""Where tensors are: `cpu`, `cuda`, `mps`, or `auto` for the best one that is there."""

from __future__ import annotations

import torch

from rivals.errors import RivalsError, unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def find_device(name: str = "cpu") -> torch.device:
    """The device of this name; one that is not there is refused in one sentence."""
    kind = name.partition(":")[0]
    if kind not in DEVICES:
        raise unknown("device", name, DEVICES)
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind == "auto":
        return torch.device(next((device for device, found in there.items() if found), "cpu"))
    if not there.get(kind, True):
        raise RivalsError(f"This machine has no {kind} device; use --device cpu or auto.")
    return torch.device(name)
