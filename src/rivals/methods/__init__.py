"""Methods of continual learning under one contract."""

from rivals.methods import dense, der, random_ticket, softnet, sparcl, twta, wsn
from rivals.methods.known import Prediction
from rivals.methods.method import Method, Step, Training, methods
from rivals.state import Part, State

__all__ = [
    "Method", "Part", "Prediction", "State", "Step", "Training", "dense", "der", "methods",
    "random_ticket", "softnet", "sparcl", "twta", "wsn",
]  # fmt: skip
