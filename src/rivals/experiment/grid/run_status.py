"""What a folder already holds of a planned run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rivals.errors import RivalsError
from rivals.experiment.grid.grid_file import Planned
from rivals.experiment.result_file import read_results
from rivals.experiment.run_folder import RunFolder, difference
from rivals.io.files import read_json


@dataclass(frozen=True)
class RunStatus:
    """Of one run: whether it is finished, and what it reached and cost."""

    finished: bool = False
    accuracy: float | None = None  # task known, in percent
    seconds: float | None = None  # of training


def look(run: Planned, out: Path) -> RunStatus:
    """Read the folder of a run; one that holds a run with other settings is refused."""
    folder = RunFolder(out / run.folder)
    if not folder.config.exists():
        return RunStatus()
    stored = folder.read_config()
    for key, value in run.settings().to_dict().items():
        differs = difference(stored.get(key), value, key)
        if differs:
            raise RivalsError(
                f"{folder.path} holds another run: {differs}; choose another --out, "
                "or give the group a name."
            )
    try:
        results = read_results(folder.results)
    except RivalsError:  # none yet, or damaged: resuming writes them anew from the checkpoint
        return RunStatus()
    if not results["complete"]:
        return RunStatus()
    return RunStatus(True, results["summary"]["accuracy"]["task_known"], seconds(folder.path))


def seconds(folder: Path) -> float | None:
    """What training took according to measured.json; None if it does not say."""
    try:
        total = read_json(folder / "measured.json", "measurements").get("total_train_seconds")
    except RivalsError:
        return None
    return float(total) if isinstance(total, int | float) and total > 0 else None
