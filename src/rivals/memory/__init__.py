"""What methods keep of the past: exemplars with labels, and a pool of pictures without."""

from rivals.memory.budget import Budget
from rivals.memory.exemplars import ExemplarMemory
from rivals.memory.features import Features
from rivals.memory.herding import herding
from rivals.memory.kept import Replay
from rivals.memory.pool import Neighbours, UnlabelledPool

__all__ = [
    "Budget",
    "ExemplarMemory",
    "Features",
    "Neighbours",
    "Replay",
    "UnlabelledPool",
    "herding",
]
