"""What a comparison says of itself in its folder, for those who follow it: .grid.json.

Its name begins with a dot, so nobody takes it for a run.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.files import remove_abandoned, write_json
from rivals.io.reading import read_json

NAME = ".grid.json"


@dataclass(frozen=True)
class GridState:
    """The folders of the runs, and whether a comparison is at work on them."""

    runs: tuple[str, ...] = ()
    at_work: bool = False

    def write(self, folder: Path) -> None:
        remove_abandoned(folder / NAME)  # several comparisons may work here, and be killed
        write_json(folder / NAME, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> GridState:
        """What the last comparison in `folder` said; nothing where there was none."""
        if not os.path.lexists(folder / NAME):
            return cls()
        try:
            found = read_json(folder / NAME, "grid")
        except RivalsError:  # only for those who follow: it says nothing then
            return cls()
        runs = found.get("runs")
        names = runs if isinstance(runs, list) else []
        return cls(tuple(str(name) for name in names), found.get("at_work") is True)
