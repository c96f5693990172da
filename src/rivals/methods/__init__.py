"""Methods of continual learning under one contract."""

from rivals.methods import (
    dense,
    er,
    fsdgpm,
    gem,
    gpm,
    icarl,
    il2m,
    lamaml,
    random_ticket,
    twta,
)  # fmt: skip
from rivals.methods.known import Prediction
from rivals.methods.method import Method, Step, Training, methods
from rivals.state import Part, State

__all__ = [
    "Method",
    "Part",
    "Prediction",
    "State",
    "Step",
    "Training",
    "dense",
    "er",
    "fsdgpm",
    "gem",
    "gpm",
    "icarl",
    "il2m",
    "lamaml",
    "methods",
    "random_ticket",
    "twta",
]  # fmt: skip
