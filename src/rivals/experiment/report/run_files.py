"""The runs of a report as JSON files: one file per run, from which the report can be made again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rivals.errors import RivalsError
from rivals.experiment.report.report_runs import FinishedRun
from rivals.experiment.result_file import write_results
from rivals.io.files import make_folder


def by_name(runs: Iterable[FinishedRun]) -> dict[str, FinishedRun]:
    """The runs by name; two runs of one name are refused, since they would be one file."""
    found: dict[str, FinishedRun] = {}
    for run in runs:
        other = found.setdefault(run.name, run)
        if other is not run:
            raise RivalsError(
                f"{other.path} and {run.path} would share one file; rename one of them."
            )
    return found


def write_runs(runs: dict[str, FinishedRun], out: Path) -> list[Path]:
    """Each run as `out`/<name>.json: results, winners, settings, measurements; no weights.

    A file of the same name is replaced; other files in `out` stay.
    """
    if runs:
        make_folder(out)
    written = []
    for name, run in runs.items():
        content = dict(run.results)
        if run.config:
            # YAML has values that JSON has not, such as dates; they are kept as text.
            content["config"] = json.loads(json.dumps(run.config, default=str))
        if run.measured:
            content["measured"] = run.measured
        written.append(out / f"{name}.json")
        write_results(written[-1], content)
    return written
