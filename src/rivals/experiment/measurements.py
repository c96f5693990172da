"""measured.json: seconds, memory, host and dates, in a file of its own so that results compare."""

from __future__ import annotations

import platform
import subprocess
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from rivals import __version__
from rivals.io.process_memory import peak_memory


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@cache
def revision() -> str:
    """The commit of a checkout, with a + if files differ from it; elsewhere the version."""
    here = Path(__file__).parent
    words = ["git", "describe", "--always", "--exclude=*", "--abbrev=10", "--dirty=+"]
    try:
        if not (here.parents[2] / ".git").exists():
            return __version__
        found = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return __version__
    return found.stdout.strip() or __version__


@dataclass
class Measured:
    """Time and memory of a run on this machine."""

    host: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    revision: str = field(default_factory=revision)  # of the program that started the run
    started: str = field(default_factory=_now)
    saved: str = ""
    peak_memory_bytes: int = 0
    resumed: int = 0
    train_seconds: dict[str, float] = field(default_factory=dict)  # by task
    steps: dict[str, int] = field(default_factory=dict)  # by task; resumed logs count from them
    _task: str = ""
    _since: float = 0.0

    def begin(self, task: str) -> None:
        self._task, self._since = task, time.monotonic()
        self.steps.setdefault(task, 0)

    def account(self) -> None:
        """Add the time since `begin`, or since the last call, to the task."""
        if self._task:
            now = time.monotonic()
            before = self.train_seconds.get(self._task, 0.0)
            self.train_seconds[self._task] = before + now - self._since
            self._since = now

    def end(self) -> None:
        self.account()
        self._task = ""

    def to_dict(self) -> dict[str, Any]:
        self.account()
        self.saved = _now()
        self.peak_memory_bytes = max(self.peak_memory_bytes, peak_memory())
        values = {k: v for k, v in asdict(self).items() if not k.startswith("_")}
        values["total_train_seconds"] = sum(self.train_seconds.values())
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Measured:
        """As `to_dict` wrote them; what is missing or of another type begins anew."""
        found = cls()
        for name, value in vars(found).items():
            if not name.startswith("_") and type(values.get(name)) is type(value):
                setattr(found, name, values[name])
        seconds = found.train_seconds.items()
        found.train_seconds = {task: each for task, each in seconds if isinstance(each, float)}
        found.steps = {t: each for t, each in found.steps.items() if isinstance(each, int)}
        found.resumed += 1
        return found
