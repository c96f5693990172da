"""What a report was made of, copied beside it: small files, from which it can be made again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rivals.errors import RivalsError
from rivals.experiment.report.report_runs import FinishedRun
from rivals.io.files import make_folder, write_bytes

FILES = ("config.yaml", "results.json", "measured.json")


def by_folder(runs: Iterable[FinishedRun]) -> dict[str, FinishedRun]:
    """The runs by the names of their folders, which must differ if they are to lie side by side."""
    found: dict[str, FinishedRun] = {}
    for run in runs:
        other = found.setdefault(run.path.resolve().name, run)
        if other is not run:
            raise RivalsError(
                f"{other.path} and {run.path} would share one folder; rename one of them."
            )
    return found


def copy(runs: dict[str, FinishedRun], out: Path) -> list[Path]:
    """The files of each run that a report reads, to `out`/<its folder>; no weights.

    A run that is there already is replaced, others stay.
    """
    written = []
    for name, run in runs.items():
        for file in _files(run.path):
            target = out / name / file.relative_to(run.path)
            if target.resolve() != file.resolve():
                make_folder(target.parent)
                write_bytes(target, _content(file))
            written.append(target)
    return written


def _files(folder: Path) -> list[Path]:
    here = [folder / name for name in FILES if (folder / name).is_file()]
    return [*here, *sorted(folder.glob("tickets/*/ticket.json"))]


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise RivalsError(f"Could not read {file} ({error.strerror}).") from error
