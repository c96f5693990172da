"""Layers of rival units and what flows between them."""

from rivals.layers.dense import DenseConv2d, DenseLayer, DenseLinear
from rivals.layers.flow import Activation, Flatten, Flow, GlobalPool, MaxPool
from rivals.layers.generated import GeneratedWeight
from rivals.layers.head import Head, Heads
from rivals.layers.norm import TaskNorm
from rivals.layers.rivals import Rivals
from rivals.layers.selection import Draw, Masked, Selection, Settled, Winners, Wiring
from rivals.layers.shared import HeldWeight, SharedWeight
from rivals.layers.twta import TWTAConv2d, TWTALayer, TWTALinear
from rivals.layers.work import Slice, Work

__all__ = [
    "Activation",
    "DenseConv2d",
    "DenseLayer",
    "DenseLinear",
    "Draw",
    "Flatten",
    "Flow",
    "GeneratedWeight",
    "GlobalPool",
    "Head",
    "Heads",
    "HeldWeight",
    "Masked",
    "MaxPool",
    "Rivals",
    "Selection",
    "Settled",
    "SharedWeight",
    "Slice",
    "TWTAConv2d",
    "TWTALayer",
    "TWTALinear",
    "TaskNorm",
    "Winners",
    "Wiring",
    "Work",
]  # fmt: skip
