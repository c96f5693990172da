"""Find data: in `--data DIR` or $RIVALS_DATA, then in the user's cache; packed or unpacked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rivals.errors import RivalsError
from rivals.streams.data.catalogue import DataSet


def use(folder: Path) -> None:
    """Make `folder` the first data root, also for child processes."""
    os.environ["RIVALS_DATA"] = str(folder)


def cache_folder() -> Path:
    """$RIVALS_CACHE, or else `rivals` in the user's cache folder."""
    if own := os.environ.get("RIVALS_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rivals"


def roots() -> list[Path]:
    """The folders that are searched, in order; downloads go to the first."""
    found = [cache_folder() / "data"]
    if chosen := os.environ.get("RIVALS_DATA"):
        folder = Path(chosen)
        if folder.exists() and not folder.is_dir():
            raise RivalsError(
                f"The data root {folder} is a file, but it must be a folder; "
                "give one with --data DIR."
            )
        found.insert(0, folder)
    return found


@dataclass(frozen=True)
class Located:
    """A data set on disk: its root, and the file or folder of each role."""

    dataset: DataSet
    root: Path
    files: Mapping[str, Path]


def _plain(path: Path) -> Path:
    """A pipe or a device could be read for ever."""
    if not (path.is_file() or path.is_dir()):
        raise RivalsError(
            f"{path} is neither a file nor a folder; remove it and fetch the official file again."
        )
    return path


def search(dataset: DataSet) -> Located | None:
    """Find the first root that has every source of `dataset`; None if there is none."""
    for root in roots():
        files: dict[str, Path] = {}
        for source in dataset.sources:
            for name in (source.path, source.unpacked):
                if name and (root / name).exists():
                    files[source.role] = _plain(root / name)
                    break
        if len(files) == len(dataset.sources):
            beside = {role: root / name for role, name in dataset.lists if (root / name).is_file()}
            return Located(dataset, root, {**files, **beside})
    return None


def locate(dataset: DataSet) -> Located:
    """Like `search`, but raises an error that names the missing files."""
    found = search(dataset)
    if found is not None:
        return found
    root = roots()[0]
    missing = [
        source.path
        for source in dataset.sources
        if not any((root / name).exists() for name in (source.path, source.unpacked) if name)
    ]
    raise RivalsError(
        f"{dataset.title} is not here: {' and '.join(missing)} "
        f"{'was' if len(missing) == 1 else 'were'} looked for under "
        f"{' and '.join(str(folder) for folder in roots())}; "
        f"run `rivals data get {dataset.name}`, or give the folder that has it with --data DIR."
    )
