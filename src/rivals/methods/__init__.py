"""Methods of continual learning under one contract."""

from rivals.methods import dense, er, gem, icarl, il2m, random_ticket, twta
from rivals.methods.known import Prediction
from rivals.methods.method import Method, Step, Training, methods
from rivals.state import Part, State

__all__ = [
    "Method", "Part", "Prediction", "State", "Step", "Training", "dense", "er", "gem", "icarl",
    "il2m", "methods", "random_ticket", "twta",
]  # fmt: skip
