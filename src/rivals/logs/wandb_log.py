"""Logs in Weights & Biases, online or offline ($WANDB_MODE=offline)."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.files import make_folder, write_json
from rivals.io.reading import read_json
from rivals.logs.logger import Logger

PROJECT = "rivals"  # where $WANDB_PROJECT says nothing


class WandbLogger(Logger):
    """Logs into a run of Weights & Biases.

    Args:
        run: What `wandb.init` gave; it stays open. Without it one is started, and finished with the
            training.
        folder: Where the files and the id of a run that is started go, for a resumed training.

    >>> import importlib.util, rivals
    >>> if importlib.util.find_spec("wandb"):
    ...     import wandb
    ...     small = {"tasks": 1, "epochs": 1, "architecture": "mlp", "widths": (8, 8), "units": 2}
    ...     log = rivals.WandbLogger(wandb.init(mode="disabled"))
    ...     results = rivals.run("digits", settings=small, out="runs/wandb", log=log)
    """

    def __init__(self, run: Any = None, folder: str | os.PathLike[str] | None = None) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise RivalsError(
                "--log wandb needs Weights & Biases, which is not installed; pip install wandb."
            )
        self.own, self.folder = run is None, None if folder is None else Path(folder)
        self.id: str | None = None  # of a run that goes on
        self._run: Any = run

    @property
    def run(self) -> Any:
        """The run that is logged into, started now if there is none."""
        if self._run is None:
            wandb = importlib.import_module("wandb")
            if self.folder is not None:
                make_folder(self.folder)
            try:
                self._run = wandb.init(
                    project=os.environ.get("WANDB_PROJECT", PROJECT),
                    name=self.folder.parent.name if self.folder else None,
                    dir=str(self.folder) if self.folder else None,
                    id=self.id, resume="allow" if self.id else None,
                    settings=wandb.Settings(console="off"),
                )  # fmt: skip
            except Exception as error:
                said = str(error).strip().partition("\n")[0]
                raise RivalsError(
                    f"Weights & Biases did not start ({said}); run `wandb login`, set "
                    "WANDB_MODE=offline, or leave out --log wandb."
                ) from error
            if self.folder is not None:
                write_json(self.folder / "wandb.json", {"run": self._run.id})
        return self._run

    def settings(self, values: Mapping[str, Any]) -> None:
        self.run.config.update(dict(values), allow_val_change=True)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        picture = importlib.import_module("wandb").Image(image)
        self.run.log({name: picture}, step=step)

    def rewind(self, step: int) -> None:
        """The same id goes on; Weights & Biases itself drops the steps that it has."""
        stored = self.folder / "wandb.json" if self.own and self.folder else None
        if step > 0 and stored is not None and os.path.lexists(stored):
            self.id = str(read_json(stored, "log").get("run"))

    def close(self) -> None:
        if self.own and self._run is not None:
            self._run.finish()
            self._run = None
