"""Continual learning on small devices: rival units compete for each task, the winners ship.

    import rivals

    model = rivals.Model("parts")
    model.learn("photos/screws")
    model.predict("new.jpg").label

Names are loaded when they are first used, so that `import rivals` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rivals.ancestors.making import make_ancestor
    from rivals.answer import Answer, Choice
    from rivals.errors import Interrupted, RivalsError
    from rivals.experiment.api import RunResults, run
    from rivals.experiment.grid.comparison import compare
    from rivals.learn.callbacks import Callback, EarlyStopping
    from rivals.learn.method import Method, methods
    from rivals.learn.trainer import Trainer
    from rivals.learn.training_log import TrainingLog
    from rivals.logs.csv_log import CSVLogger
    from rivals.logs.logger import Logger
    from rivals.logs.mlflow_log import MlflowLogger
    from rivals.logs.tensorboard_log import TensorBoardLogger
    from rivals.logs.wandb_log import WandbLogger
    from rivals.model.explaining import Explanation
    from rivals.model.model import Model
    from rivals.model.testing import TestReport
    from rivals.nn.network_plan import networks
    from rivals.nn.rival_network import RivalNetwork
    from rivals.nn.twta_layers import TWTAConv2d, TWTALinear
    from rivals.settings import Settings
    from rivals.streams.stream import Stream
    from rivals.streams.stream import streams as benchmarks
    from rivals.streams.task import Task
    from rivals.tickets.ticket import Ticket

__version__ = "0.2.0"

_MODULES = {
    "Answer": "rivals.answer",
    "CSVLogger": "rivals.logs.csv_log",
    "Callback": "rivals.learn.callbacks",
    "Choice": "rivals.answer",
    "EarlyStopping": "rivals.learn.callbacks",
    "Explanation": "rivals.model.explaining",
    "Interrupted": "rivals.errors",
    "Logger": "rivals.logs.logger",
    "Method": "rivals.learn.method",
    "MlflowLogger": "rivals.logs.mlflow_log",
    "Model": "rivals.model.model",
    "RivalNetwork": "rivals.nn.rival_network",
    "RivalsError": "rivals.errors",
    "RunResults": "rivals.experiment.api",
    "Settings": "rivals.settings",
    "Stream": "rivals.streams.stream",
    "TWTAConv2d": "rivals.nn.twta_layers",
    "TWTALinear": "rivals.nn.twta_layers",
    "Task": "rivals.streams.task",
    "TensorBoardLogger": "rivals.logs.tensorboard_log",
    "TestReport": "rivals.model.testing",
    "Ticket": "rivals.tickets.ticket",
    "Trainer": "rivals.learn.trainer",
    "TrainingLog": "rivals.learn.training_log",
    "WandbLogger": "rivals.logs.wandb_log",
    "benchmarks": "rivals.streams.stream:streams",  # rivals.streams is the package
    "compare": "rivals.experiment.grid.comparison",
    "make_ancestor": "rivals.ancestors.making",
    "methods": "rivals.learn.method",
    "networks": "rivals.nn.network_plan",
    "run": "rivals.experiment.api",
}
__all__ = [
    "Answer",
    "CSVLogger",
    "Callback",
    "Choice",
    "EarlyStopping",
    "Explanation",
    "Interrupted",
    "Logger",
    "Method",
    "MlflowLogger",
    "Model",
    "RivalNetwork",
    "RivalsError",
    "RunResults",
    "Settings",
    "Stream",
    "TWTAConv2d",
    "TWTALinear",
    "Task",
    "TensorBoardLogger",
    "TestReport",
    "Ticket",
    "Trainer",
    "TrainingLog",
    "WandbLogger",
    "benchmarks",
    "compare",
    "make_ancestor",
    "methods",
    "networks",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        module, _, attribute = _MODULES[name].partition(":")
        return getattr(importlib.import_module(module), attribute or name)
    raise AttributeError(f"module 'rivals' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
