"""Methods of continual learning under one contract."""

from rivals.methods import (
    dense,
    der,
    er,
    fsdgpm,
    gem,
    gpm,
    icarl,
    il2m,
    lamaml,
    llt,
    random_ticket,
    softnet,
    sparcl,
    twta,
    wsn,
)  # fmt: skip
from rivals.methods.known import Prediction
from rivals.methods.method import Method, Step, methods
from rivals.methods.training import Training
from rivals.state import Part, State

__all__ = [
    "Method",
    "Part",
    "Prediction",
    "State",
    "Step",
    "Training",
    "dense",
    "der",
    "er",
    "fsdgpm",
    "gem",
    "gpm",
    "icarl",
    "il2m",
    "lamaml",
    "llt",
    "methods",
    "random_ticket",
    "softnet",
    "sparcl",
    "twta",
    "wsn",
]  # fmt: skip
