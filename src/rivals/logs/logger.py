"""What a logger is: it takes numbers by name, pictures, and is told where a stopped run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Logger:
    """Takes the numbers of a run. Only `scalars` must be written for a logger of your own.

    Names have a group, `steps/loss` or `tasks/forgetting`. A step is the number of training steps
    made before, over all tasks.

    >>> import rivals
    >>> class Printer(rivals.Logger):
    ...     def scalars(self, values, step):
    ...         if "tasks/accuracy_known" in values:
    ...             print(sorted(values)[:2])
    >>> small = {"tasks": 1, "epochs": 1, "architecture": "mlp", "widths": (8, 8), "units": 2}
    >>> results = rivals.run("digits", settings=small, out="runs/printed", log=Printer())
    ['tasks/accuracy_known', 'tasks/accuracy_new']
    """

    def settings(self, values: Mapping[str, Any]) -> None:
        """All settings of the run, by name, before anything else is logged."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers by name, all of one moment."""
        raise NotImplementedError

    def image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """A picture: (height, width, 3)."""

    def rewind(self, step: int) -> None:
        """The run goes on from `step`: what was logged from there on will be logged again.

        Called once at the start, before `scalars`; 0 for a new run.
        """

    def flush(self) -> None:
        """Put what was logged where a kill of this process cannot take it away."""

    def close(self) -> None:
        """The run has ended."""
