"""Loggers from what a user writes: `csv`, `tensorboard,csv`, a Logger, or a list of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from rivals.errors import RivalsError, unknown
from rivals.logs.csv_log import CSVLogger
from rivals.logs.logger import Logger
from rivals.logs.mlflow_log import MlflowLogger
from rivals.logs.tensorboard_log import TensorBoardLogger
from rivals.logs.wandb_log import WandbLogger

LogTarget: TypeAlias = str | Logger | Sequence[str | Logger] | None
FOLDER = "log"  # of a run
LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "csv": CSVLogger,
    "tensorboard": lambda folder: TensorBoardLogger(folder / "tensorboard"),
    "mlflow": lambda folder: MlflowLogger(folder=folder),
    "wandb": lambda folder: WandbLogger(folder=folder),
}


def open_loggers(log: LogTarget, folder: Path) -> list[Logger]:
    """The loggers; those that are named write into `folder`, and nothing before they log."""
    found: list[Logger] = []
    given: Sequence[object] = log if isinstance(log, list | tuple) else [log]
    for each in given if log is not None else []:
        if isinstance(each, Logger):
            found.append(each)
        elif isinstance(each, str):
            found += [_named(name)(folder) for name in log_names(each)]
        else:
            raise RivalsError(
                f"A logger is of type {type(each).__name__}, but a name ({', '.join(LOGGERS)}) or "
                "a rivals.Logger was expected."
            )
    return found


def log_names(text: str | None) -> list[str]:
    """`tensorboard,csv` as names, each once; another name is answered with those that there are."""
    names = list(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))
    if text is not None and not names:
        raise RivalsError(f"--log names nothing; known are {', '.join(LOGGERS)}.")
    for name in names:
        _named(name)
    return names


def _named(name: str) -> Callable[[Path], Logger]:
    if name not in LOGGERS:
        raise unknown("logger", name, LOGGERS)
    return LOGGERS[name]
