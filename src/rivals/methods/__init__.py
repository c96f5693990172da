"""Methods of continual learning under one contract."""

from rivals.methods import dense, fsdgpm, gpm, lamaml, random_ticket, twta
from rivals.methods.known import Prediction
from rivals.methods.method import Method, Step, Training, methods
from rivals.state import Part, State

__all__ = [
    "Method", "Part", "Prediction", "State", "Step", "Training", "dense", "fsdgpm", "gpm",
    "lamaml", "methods", "random_ticket", "twta",
]  # fmt: skip
