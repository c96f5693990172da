"""One training as a process of its own, which writes its events to a file.

The process inherits a lock on a file, and whether it is alive is read from this lock. A process id
would not do, since ids are used again. So a server that was killed and restarted finds its
training, running or ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.io.files import open_plain
from rivals.io.locks import child_is_alive, lock_for_child
from rivals.io.reading import UnreadableError, parse_json, printable, read_bytes

TAIL = 2**20  # bytes of a file of which only the end counts
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
LAST_EVENTS = ("done", "error")
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL


class TrainingJob:
    """The process of a job and its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events.jsonl"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> None:
        """Start the process; events of earlier attempts stay in the file."""
        self._end_broken_line()
        try:
            with (
                lock_for_child(self.folder / "alive") as inherited,
                open_plain(self.events, "ab") as out,
                open_plain(self.folder / "stderr", "wb") as errors,
                open_plain(self.folder / "process", "wb") as number,
            ):
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                    pass_fds=inherited, start_new_session=True,
                )  # fmt: skip
                number.write(str(self.process.pid).encode())
        except OSError as error:
            if self.process is not None:
                self.process.kill()
            raise RivalsError(f"The training could not start ({error.strerror}).") from error

    def alive(self) -> bool:
        """Whether the process, started by this server or a former one, still runs."""
        if self.process is not None:
            return self.process.poll() is None
        return child_is_alive(self.folder / "alive")

    def stop(self) -> None:
        """Terminate the process; kill it if it does not end in time."""
        for number in (signal.SIGTERM, KILL):
            deadline = time.monotonic() + GRACE
            if not self.alive():
                return
            with contextlib.suppress(OSError, ValueError, RivalsError):
                process = int(read_bytes(self.folder / "process", "number of a process", 20))
                if process > 1:  # others would stand for many processes
                    os.kill(process, number)
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.05)

    def outcome(self) -> dict[str, Any] | None:
        """The last event of a training that ended; None if it was interrupted."""
        last = None
        for line in _tail(self.events).splitlines():
            last = event_of(line) or last
        return last if last is not None and last["event"] in LAST_EVENTS else None

    def failure(self) -> str:
        """Why the process ended without a last event, as far as is known."""
        status = None if self.process is None else self.process.poll()
        lines = _tail(self.folder / "stderr").decode(errors="replace").strip().splitlines()
        if lines and lines[-1].startswith("rivals: "):
            return printable(lines[-1].removeprefix("rivals: "), most=1000)
        if status is not None and status < 0:
            name = signal.Signals(-status).name
            return f"The training was killed ({name}), perhaps because memory was used up."
        return f"The training ended unexpectedly; see {self.folder / 'stderr'}."

    def _end_broken_line(self) -> None:
        """End the line that a killed process left incomplete."""
        with contextlib.suppress(OSError), open_plain(self.events, "rb+") as file:
            if file.seek(0, os.SEEK_END) > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")


def event_of(line: bytes) -> dict[str, Any] | None:
    """The event on a line; None if the line is incomplete or not an event."""
    try:
        event = parse_json(line, "The event")
    except UnreadableError:
        return None
    return event if isinstance(event.get("event"), str) else None


def _tail(path: Path) -> bytes:
    """The last bytes of a file; none if it cannot be read."""
    try:
        with open_plain(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return file.read(TAIL)
    except OSError:
        return b""
