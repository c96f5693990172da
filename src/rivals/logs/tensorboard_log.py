"""Logs for TensorBoard, by torch's own writer; TensorFlow is not needed."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.logs.logger import Logger

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardLogger(Logger):
    """Writes event files into a folder: `tensorboard --logdir FOLDER` shows them.

    A run that goes on after a kill writes another file. It says from which step on, and TensorBoard
    then forgets what the earlier file has from there on.

    >>> import importlib.util, rivals
    >>> if importlib.util.find_spec("tensorboard"):
    ...     small = {"tasks": 1, "epochs": 1, "architecture": "mlp", "widths": (8, 8), "units": 2}
    ...     log = rivals.TensorBoardLogger("events")
    ...     results = rivals.run("digits", settings=small, out="runs/events", log=log)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise RivalsError(
                "--log tensorboard needs TensorBoard, which is not installed; "
                "pip install 'rivals[tensorboard]'."
            )
        self.folder, self.first = Path(folder), 0
        self._writer: SummaryWriter | None = None

    @property
    def writer(self) -> SummaryWriter:
        """Made when the first thing is logged: it takes a third of a second to import."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            try:
                self._writer = SummaryWriter(str(self.folder), purge_step=self.first)
            except OSError as error:
                raise RivalsError(
                    f"Could not write the log {self.folder} ({error.strerror}); make room there, "
                    "or leave out --log."
                ) from error
        return self._writer

    def settings(self, values: Mapping[str, Any]) -> None:
        lines = [f"    {name}: {json.dumps(value, default=str)}" for name, value in values.items()]
        self.writer.add_text("settings", "\n".join(lines), self.first)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        self.writer.add_image(name, image, step, dataformats="HWC")

    def rewind(self, step: int) -> None:
        self.close()
        self.first = step

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
