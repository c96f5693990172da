"""Logs in MLflow: metrics by step, settings as parameters, pictures as images of the run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.files import make_folder, write_json
from rivals.io.reading import read_json
from rivals.logs.logger import Logger

EXPERIMENT = "rivals"  # where $MLFLOW_EXPERIMENT_NAME says nothing
BATCH = 100  # parameters that MLflow takes at once
LONGEST = 500  # characters of a parameter


class MlflowLogger(Logger):
    """Logs into a run of MLflow, at the server or in the database that MLflow is set to.

    A run that goes on after a kill logs only what MLflow does not have yet.

    Args:
        run: The id of a run, or what `mlflow.start_run` gave; it stays open. Without it one is
            started in the experiment $MLFLOW_EXPERIMENT_NAME, and ended with the training.
        folder: Where the id of a run that is started is remembered, for a resumed training.

    >>> import importlib.util, os, pathlib, rivals
    >>> if importlib.util.find_spec("mlflow"):
    ...     os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    ...     os.environ["MLFLOW_TRACKING_URI"] = pathlib.Path("mlruns").absolute().as_uri()
    ...     small = {"tasks": 1, "epochs": 1, "architecture": "mlp", "widths": (8, 8), "units": 2}
    ...     results = rivals.run("digits", settings=small, out="runs/mlflow", log="mlflow")
    """

    def __init__(self, run: Any = None, folder: str | os.PathLike[str] | None = None) -> None:
        if importlib.util.find_spec("mlflow") is None:
            raise RivalsError(
                "--log mlflow needs MLflow, which is not installed; pip install mlflow."
            )
        given = getattr(getattr(run, "info", None), "run_id", run)
        self.id: str | None = None if given is None else str(given)
        self.own = given is None  # then it is ended here, too
        self.folder = None if folder is None else Path(folder)
        self.seen: dict[str, int] = {}  # by metric, the last step that MLflow has
        self._client: Any = None

    @property
    def client(self) -> Any:
        """MLflow takes two seconds to import, so that waits for the first number."""
        if self._client is None:
            mlflow = importlib.import_module("mlflow")
            with told():
                self._client = mlflow.MlflowClient()
        return self._client

    def run_id(self) -> str:
        """The run that is logged into, started now if there is none."""
        if self.id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            with told():
                found = self.client.get_experiment_by_name(name)
                place = found.experiment_id if found else self.client.create_experiment(name)
                label = self.folder.parent.name if self.folder else None
                self.id = str(self.client.create_run(place, run_name=label).info.run_id)
            if self.folder is not None:
                make_folder(self.folder)
                write_json(self.folder / "mlflow.json", {"run": self.id})
        return self.id

    def settings(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(name, str(value)[:LONGEST]) for name, value in values.items()]
        with told():
            for start in range(0, len(params), BATCH):
                self.client.log_batch(self.run_id(), params=params[start : start + BATCH])

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [
            Metric(name, value, now, step)
            for name, value in values.items()
            if step > self.seen.get(name, -1)
        ]
        if metrics:
            with told():
                self.client.log_batch(self.run_id(), metrics=metrics)

    def image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        if step > max(self.seen.values(), default=-1):
            with told():
                self.client.log_image(self.run_id(), image, key=name.replace("/", "-"), step=step)

    def rewind(self, step: int) -> None:
        stored = self.folder / "mlflow.json" if self.own and self.folder else None
        if self.id is None and stored is not None and os.path.lexists(stored):
            old = str(read_json(stored, "log").get("run"))
            if step > 0:
                self.id = old
            else:  # it ended before anything of it was saved: this is another run
                with told():
                    self.client.set_terminated(old, status="KILLED")
        if self.id is not None:
            with told():
                for name in self.client.get_run(self.id).data.metrics:
                    found = self.client.get_metric_history(self.id, name)
                    self.seen[name] = max(each.step for each in found)

    def close(self) -> None:
        if self.own and self.id is not None:
            with told():
                self.client.set_terminated(self.id)
            self.id = None


@contextmanager
def told() -> Iterator[None]:
    """What MLflow complains of as one sentence."""
    try:
        yield
    except Exception as error:
        said = str(error).strip().partition("\n")[0].partition(". ")[0]
        raise RivalsError(
            f"MLflow did not take the log ({said}); see to $MLFLOW_TRACKING_URI, or leave out "
            "--log mlflow."
        ) from error
