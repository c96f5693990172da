"""What a folder already holds of a planned run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rivals.errors import RivalsError
from rivals.experiment.grid.grid_file import PlannedRun
from rivals.experiment.result_file import read_results
from rivals.experiment.run_folder import RunFolder, difference
from rivals.io.reading import read_json


@dataclass(frozen=True)
class RunStatus:
    """Whether a run is finished, and what it reached and cost."""

    finished: bool = False
    accuracy: float | None = None  # task known, in percent
    seconds: float | None = None  # of training
    kilobytes: float | None = None  # needed to continue training
    ancestor: str = ""  # the trained network that it starts from


def read_status(run: PlannedRun, out: Path) -> RunStatus:
    """Read the folder of a run; one that holds a run with other settings is refused."""
    folder = RunFolder(out / run.folder)
    if not folder.config.exists():
        return RunStatus()
    stored = folder.read_config()
    wanted = {**run.settings().to_dict(), "measured_on": run.on}
    found = {**stored, "measured_on": (stored.get("data") or {}).get("measured_on")}
    for key, value in wanted.items():
        differs = difference(found.get(key), value, key)
        if differs:
            raise RivalsError(
                f"{folder.path} holds another run: {differs}; choose another --out, "
                "or give the group a name."
            )
    try:
        results = read_results(folder.results)
    except RivalsError:  # none yet, or damaged: resuming writes them again from the checkpoint
        return RunStatus()
    if not results["complete"]:
        return RunStatus()
    summary = results["summary"]
    kilobytes = sum(summary.get("bytes", {}).values()) / 1000
    accuracy = summary["accuracy"]["task_known"]
    ancestor = results.get("ancestor", {}).get("name", "")
    return RunStatus(True, accuracy, train_seconds(folder.path), kilobytes or None, ancestor)


def train_seconds(folder: Path) -> float | None:
    """What training took according to measured.json; None if it does not say."""
    try:
        total = read_json(folder / "measured.json", "measurements").get("total_train_seconds")
    except RivalsError:
        return None
    return float(total) if isinstance(total, int | float) and total > 0 else None
