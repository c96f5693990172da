"""The folder of a run: its settings, results, measurements, checkpoint and tickets."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from rivals import __version__
from rivals.errors import RivalsError
from rivals.experiment.checkpoint import CheckpointFolder
from rivals.experiment.measurements import Measured
from rivals.experiment.run_settings import RunSettings
from rivals.io.files import make_folder, remove_partial, write_json, write_yaml
from rivals.io.locks import LOCK_NAME, FolderLock
from rivals.io.reading import check_plain, read_yaml
from rivals.io.seal import sealed, unsealed
from rivals.streams.on_validation import OnValidation
from rivals.streams.stream import Stream

FORMAT = 2  # 1: rivals 0.1, whose settings had other names
KINDS: dict[str, type] = {  # what config.yaml must hold
    "benchmark": str, "method": str, "preset": str, "seed": int, "stream": dict, "network": dict,
    "training": dict, "data": dict,
}  # fmt: skip


class RunFolder:
    """Paths and checks; nothing is written before the settings are known to fit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = CheckpointFolder(path / "checkpoint")
        self.lock: FolderLock | None = None

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    def ticket(self, task: str) -> Path:
        """Where the ticket of `task` goes; no name can lead out of the folder."""
        return self.path / "tickets" / quote(task, safe=" ").replace(".", "%2E")

    def write_measured(self, measured: Measured) -> None:
        write_json(self.path / "measured.json", measured.to_dict())

    def start(self, settings: RunSettings, stream: Stream) -> None:
        """Take an empty folder and write the complete settings into it."""
        with self._reachable():
            self._take()
        write_yaml(self.config, sealed(config(settings, stream)))

    def _take(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise RivalsError(f"{self.path} is a file; --out needs a folder.")
        if self.config.exists():
            raise RivalsError(
                f"{self.path} already holds a run; go on with it by --resume, "
                "or choose another folder with --out."
            )
        # What a run leaves behind that was killed as it began.
        left = {*self.path.glob(".config.yaml.*.part"), self.path / LOCK_NAME}
        if self.path.exists() and any(path not in left for path in self.path.iterdir()):
            raise RivalsError(f"{self.path} is not empty and holds no run; choose another --out.")
        make_folder(self.path)
        if not os.access(self.path, os.W_OK):
            raise RivalsError(f"{self.path} cannot be written to; choose another --out.")
        check_plain(self.path, "run")
        self.lock = FolderLock(self.path)
        self._sweep()

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RivalsError(
                f"{self.path} cannot be used ({error.strerror}); choose another --out."
            ) from error

    def _sweep(self) -> None:
        """Remove what a killed run left half-written."""
        for path in list(self.path.rglob(".*.part")):
            remove_partial(path)

    def resume(self, settings: RunSettings, stream: Stream) -> None:
        """Make sure that the folder holds the very run that is asked for."""
        with self._reachable():
            found = self.config.exists()
        if not found:
            raise RivalsError(
                f"{self.path} holds no run to resume; leave out --resume to start one."
            )
        stored, wanted = self.read_config(), config(settings, stream)
        for key in wanted:
            if key == "versions":
                continue
            differs = difference(stored.get(key), wanted[key], key)
            if differs:
                raise RivalsError(
                    f"{self.path} holds another run: {differs}; "
                    "resume with the settings it was started with, or choose another --out."
                )
        check_plain(self.path, "run")
        with self._reachable():
            self.lock = FolderLock(self.path)
            self._sweep()

    def check_place(self) -> None:
        """Refuse to go on in a folder that was moved, removed or replaced meanwhile."""
        if self.lock:
            self.lock.check_place()

    def release(self) -> None:
        """Let others work in the folder."""
        if self.lock:
            self.lock.release()

    def read_config(self) -> dict[str, Any]:
        """The settings, as config.yaml holds them; nothing is imported or built."""
        content = read_yaml(self.config, "settings file", root=self.path)
        if not isinstance(content, dict):
            raise RivalsError(f"The settings file {self.config} is damaged: it holds no settings.")
        if content.get("format") != FORMAT:
            raise RivalsError(
                f"{self.config} has format {content.get('format')}, and this version reads "
                f"{FORMAT}; go on with rivals 0.1, or run it anew (`rivals report` reads its "
                "results.json)."
            )
        content = unsealed(content, f"The settings file {self.config}")
        for key, kind in KINDS.items():
            if not isinstance(content.get(key), kind):
                raise RivalsError(
                    f"The settings file {self.config} is damaged: it has no usable '{key}'; "
                    "bring back the original, or run it anew."
                )
        data = {"measured_on": "test", **content["data"]}  # in older files missing
        if not all(isinstance(data.get(key), str) for key in ("measured_on", "fingerprint")):
            raise RivalsError(
                f"The settings file {self.config} is damaged: its 'data' has no fingerprint; "
                "bring back the original, or run it anew."
            )
        return {**content, "data": data}


def config(settings: RunSettings, stream: Stream) -> dict[str, Any]:
    """Everything that decides a run, as config.yaml holds it."""
    return {
        "format": FORMAT,
        **settings.to_dict(),
        "data": {
            "measured_on": "validation" if isinstance(stream, OnValidation) else "test",
            "fingerprint": stream.fingerprint,
            "subset": stream.subset,
        },
        "versions": {
            "rivals": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def difference(stored: Any, wanted: Any, name: str) -> str:
    """The first setting in which two configurations differ, in words; empty if none."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        for key in {**stored, **wanted}:
            found = difference(stored.get(key), wanted.get(key), key)
            if found:
                return found
        return ""
    return "" if stored == wanted else f"its {name} is {stored}, not {wanted}"
