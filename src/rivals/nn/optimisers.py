"""torch's optimisers without torch's compiler.

Making a `torch.optim.SGD` imports the compiler, for the case that its step is compiled. Nothing
here is, and the import takes as long as that of torch itself: more than a second at the start of
every training. The classes below are torch's own, with the functions that lie beneath the
compiler's wrappers: the same steps, in the same bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


def bare(function: F) -> F:
    """The function without what is wrapped around it."""
    found: F = inspect.unwrap(function)
    return found


class SGD(torch.optim.SGD):
    """`torch.optim.SGD`."""

    add_param_group = bare(torch.optim.Optimizer.add_param_group)
    zero_grad = bare(torch.optim.Optimizer.zero_grad)
    state_dict = bare(torch.optim.Optimizer.state_dict)
    load_state_dict = bare(torch.optim.Optimizer.load_state_dict)
    step = torch.no_grad()(bare(torch.optim.SGD.step))


class Adam(torch.optim.Adam):
    """`torch.optim.Adam`."""

    add_param_group = bare(torch.optim.Optimizer.add_param_group)
    zero_grad = bare(torch.optim.Optimizer.zero_grad)
    state_dict = bare(torch.optim.Optimizer.state_dict)
    load_state_dict = bare(torch.optim.Optimizer.load_state_dict)
    step = torch.no_grad()(bare(torch.optim.Adam.step))
