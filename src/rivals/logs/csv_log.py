"""Logs as CSV: a file for each group of names, steps.csv and tasks.csv, and pictures as PNG.

    step,task,loss,accuracy,lr,memory_mb
    0,1,0.697,50,0.05,312.4

Rows are appended. A half-written last row, which a killed process leaves, is not read.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.files import make_folder, open_plain, write_bytes
from rivals.io.reading import UnreadableError, read_bytes
from rivals.logs.logger import Logger

LARGEST = 256 * 2**20  # bytes of a file
MOST_COLUMNS = 200
TRIES = 5  # to read a file that grows
IMAGES = "images"  # the folder of pictures
Row = dict[str, str]


class CSVLogger(Logger):
    """Writes steps.csv, tasks.csv and images/*.png into a folder. A new run replaces them.

    >>> import csv, rivals
    >>> small = {"tasks": 1, "epochs": 1, "architecture": "mlp", "widths": (8, 8), "units": 2}
    >>> log = rivals.CSVLogger("curves")
    >>> results = rivals.run("digits", settings=small, out="runs/logged", log=log)
    >>> with open("curves/steps.csv") as file:
    ...     rows = list(csv.DictReader(file))
    >>> rows[0]["step"], rows[0]["task"], float(rows[0]["loss"]) > 0
    ('0', '1', True)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.files: dict[str, IO[bytes]] = {}  # by group
        self.columns: dict[str, list[str]] = {}

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        groups: dict[str, Row] = defaultdict(dict)
        for name, value in values.items():
            group, _, column = name.rpartition("/")
            groups[group or "steps"][column] = format(value, ".8g")
        for group, row in groups.items():
            self._append(group, {"step": str(step), **row})

    def image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        from PIL import Image

        place, data = self.folder / IMAGES, io.BytesIO()
        Image.fromarray(image).save(data, "png")
        make_folder(place)
        write_bytes(place / f"{name.replace('/', '-')}-{step:08}.png", data.getvalue())

    def rewind(self, step: int) -> None:
        self.close()
        for path in self.folder.glob("*.csv"):
            columns, rows = read_rows(path)
            kept = [row for row in rows if int(row["step"]) < step]
            if kept:
                _write(path, columns, kept)
            else:
                path.unlink()
        for path in (self.folder / IMAGES).glob("*.png"):
            found = re.search(r"-(\d{8,})\.png$", path.name)
            if found and int(found[1]) >= step:
                path.unlink()

    def flush(self) -> None:
        try:
            for file in self.files.values():
                file.flush()
        except OSError as error:
            raise self._not_written(error) from error

    def close(self) -> None:
        files, self.files, self.columns = self.files, {}, {}
        try:
            for file in files.values():
                file.close()
        except OSError as error:
            raise self._not_written(error) from error

    def _append(self, group: str, row: Row) -> None:
        path = self.folder / f"{group.replace('/', '-')}.csv"
        try:
            if group not in self.files:
                make_folder(self.folder)
                self.columns[group] = read_rows(path)[0] if os.path.lexists(path) else []
                self.files[group] = open_plain(path, "ab")
            columns, file = self.columns[group], self.files[group]
            new = [name for name in row if name not in columns]
            if new and columns:  # seldom: all rows get the new columns
                file.close()
                _write(path, [*columns, *new], read_rows(path)[1])
                file = self.files[group] = open_plain(path, "ab")
            elif new:
                file.write(_line(new))
            columns += new
            file.write(_line(row.get(name, "") for name in columns))
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> RivalsError:
        return RivalsError(
            f"Could not write the log {self.folder} ({error.strerror}); make room there, or leave "
            "out --log."
        )


def read_rows(path: Path) -> tuple[list[str], list[Row]]:
    """The columns of a log, and its rows; a last row that is not complete is left out."""
    text = _content(path).decode(errors="replace")
    whole = text[: text.rfind("\n") + 1]
    lines = list(csv.reader(io.StringIO(whole, newline="")))
    columns = lines[0] if lines else ["step"]
    if columns[0] != "step" or not len(set(columns)) == len(columns) <= MOST_COLUMNS:
        raise _damaged(path, "its first line must name columns, the first of them step")
    rows = []
    for number, cells in enumerate(lines[1:], 2):
        if len(cells) != len(columns) or not re.fullmatch(r"\d{1,15}", cells[0]):
            raise _damaged(path, f"line {number} does not fit its columns")
        rows.append(dict(zip(columns, cells, strict=True)))
    return columns, rows


def _content(path: Path) -> bytes:
    """All bytes of a file that somebody may be writing to: if it grew meanwhile, they are read
    again."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(UnreadableError):
            return read_bytes(path, "log", LARGEST)
    return read_bytes(path, "log", LARGEST)


def read_log(path: Path) -> dict[str, NDArray[np.float64]]:
    """A log as one array for each column, in order of time; NaN where a row has no value."""
    columns, rows = read_rows(path)
    try:
        found = {
            name: np.array([float(row[name] or "nan") for row in rows], dtype=np.float64)
            for name in columns
        }
    except ValueError as error:
        raise _damaged(path, f"it holds a word where a number should be ({error})") from error
    return {name: np.where(np.isfinite(each), each, math.nan) for name, each in found.items()}


def _damaged(path: Path, why: str) -> RivalsError:
    return RivalsError(f"The log {path} is damaged: {why}; delete it, the results need it not.")


def _write(path: Path, columns: list[str], rows: list[Row]) -> None:
    lines = [_line(row.get(name, "") for name in columns) for row in rows]
    write_bytes(path, b"".join([_line(columns), *lines]))


def _line(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
